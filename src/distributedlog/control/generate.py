"""Makes _generated/ from protos/: `python -m distributedlog.control.generate`.

The protos name each other as `dlog/v1/NAME.proto`, which is what other languages and reflection see; the
Python modules live in our package, so their imports of each other are rewritten.  Only messages are made.
The few calls are declared by hand where they are used: generated stubs would be untyped, and bind us to the
version of grpcio that made them.

The compiler is that of grpcio-tools 1.76, whose code asks for protobuf 6.31.1 or newer.  A protobuf runtime
takes code of its own major version, if no newer than itself, and of the one before: so this code loads with
protobuf 6.31 to 7, beside PySpark Connect 4.1 and later (code of protobuf 6.33, grpcio 1.76 or newer) and
whatever else a program brings.  A newer compiler would only narrow that.
"""

import os
import sys
import tempfile

PROTO_PACKAGE = "dlog/v1"
PYTHON_PACKAGE = "distributedlog.control._generated"
NAMES = ("common", "raft", "controller", "broker_service")

_HERE = os.path.dirname(os.path.abspath(__file__))
PROTOS = os.path.join(_HERE, "protos")
GENERATED = os.path.join(_HERE, "_generated")


def generate() -> dict[str, str]:
    """The text of each module and of its stub, by file name."""
    from grpc_tools import protoc  # a development tool: not there where distributedlog is only used

    with tempfile.TemporaryDirectory() as made:
        arguments = ["protoc", f"-I{PROTO_PACKAGE}={PROTOS}", f"--python_out={made}", f"--pyi_out={made}"]
        status = protoc.main([*arguments, *(f"{PROTO_PACKAGE}/{name}.proto" for name in NAMES)])
        if status != 0:
            raise RuntimeError(f"protoc failed with {status}")
        file_names = [f"{name}_pb2.{suffix}" for name in NAMES for suffix in ("py", "pyi")]
        return {name: _adopted(os.path.join(made, *PROTO_PACKAGE.split("/"), name)) for name in file_names}


def _adopted(path: str) -> str:
    with open(path, encoding="utf-8") as source:
        text = source.read()
    return text.replace(f"from {PROTO_PACKAGE.replace('/', '.')} import", f"from {PYTHON_PACKAGE} import")


def main() -> int:
    for name, text in generate().items():
        with open(os.path.join(GENERATED, name), "w", encoding="utf-8") as target:
            target.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
