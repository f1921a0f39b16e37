"""Makes _generated/ from protos/ in each package that has them: `python -m distributedlog.control.generate`.

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
PACKAGES = {"control": ("common", "authentication", "raft", "controller"), "gateway": ("broker_service",)}
"""Which protos each package has."""
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def protos_of(package: str) -> str:
    return os.path.join(_ROOT, package, "protos")


def generated_of(package: str) -> str:
    return os.path.join(_ROOT, package, "_generated")


def generate(package: str) -> dict[str, str]:
    """The text of each module of a package and of its stub, by file name."""
    from grpc_tools import protoc  # a development tool: not there where distributedlog is only used

    names = PACKAGES[package]
    with tempfile.TemporaryDirectory() as made:
        arguments = [
            "protoc", f"-I{PROTO_PACKAGE}={protos_of(package)}", f"--python_out={made}", f"--pyi_out={made}"
        ]  # fmt: skip
        status = protoc.main([*arguments, *(f"{PROTO_PACKAGE}/{name}.proto" for name in names)])
        if status != 0:
            raise RuntimeError(f"protoc failed with {status}")
        file_names = [f"{name}_pb2.{suffix}" for name in names for suffix in ("py", "pyi")]
        made_in = os.path.join(made, *PROTO_PACKAGE.split("/"))
        return {name: _import_from(package, os.path.join(made_in, name)) for name in file_names}


def _import_from(package: str, path: str) -> str:
    with open(path, encoding="utf-8") as source:
        text = source.read()
    return text.replace(
        f"from {PROTO_PACKAGE.replace('/', '.')} import", f"from distributedlog.{package}._generated import"
    )


def main() -> int:
    for package in PACKAGES:
        for name, text in generate(package).items():
            with open(os.path.join(generated_of(package), name), "w", encoding="utf-8") as target:
                target.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
