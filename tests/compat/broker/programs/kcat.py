"""Debian's kcat as a client program: `python -m tests.compat.broker.programs.kcat BOOTSTRAP`.

Each operation is one or more kcat processes.  What it prints is told apart by lengths: a line with the
offset, the timestamp, the lengths of key and value and the headers, then as many bytes as the line says.
kcat writes a null header as `NULL`, and sets no timestamps; records that differ in their headers, or of which
some have a null value and some not, need a process each.
"""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from tests.compat.broker.programs.lines import (
    TIMEOUT_SECONDS,
    Answer,
    RefusedError,
    Request,
    as_record,
    headers_of,
    serve,
    to_bytes,
)

KEY_ENDS, RECORD_ENDS = b"<k>", b"<r>"
FORMAT = r"%o %T %K %S %h\n%k%s\n"
DELIVERED = re.compile(r"% Message delivered to partition \d+ \(offset (\d+)\)")
FOUND = re.compile(r"offset (-?\d+)")
NO_OFFSET = -1
UNREACHABLE = "Local: Broker transport failure"
CODES = {"Message size too large": 10, "Unknown topic or partition": 3}
ACKS = {"all": "-1", "1": "1", "0": "0"}


def option(text: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text)


def header_option(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def one_process(record: Any) -> tuple[str, bool]:
    """What all records of one kcat process have in common."""
    return json.dumps(record["headers"]), record["value"] is None


def input_of(records: Iterable[Any]) -> bytes:
    lines = []
    for record in records:
        key, value = to_bytes(record["key"]), to_bytes(record["value"]) or b""
        lines.append((b"" if key is None else key + KEY_ENDS) + value)
    return RECORD_ENDS.join(lines) + RECORD_ENDS


class Kcat:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _run(self, *arguments: object, sent: bytes = b"") -> tuple[bytes, str]:
        ran = subprocess.run(
            ["kcat", "-b", self._bootstrap, "-m", "20", *map(str, arguments)],
            input=sent, capture_output=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        said = ran.stderr.decode("utf-8", "replace")
        # A broker that is gone for a while is told as an error, too; what matters is the end of it.
        errors = [line for line in said.splitlines() if "ERROR" in line and UNREACHABLE not in line]
        if ran.returncode != 0 or errors or "Delivery failed" in said:
            code = next((code for text, code in CODES.items() if text in said), None)
            raise RefusedError(code, said)
        return ran.stdout, said

    def produce(self, request: Request) -> Answer:
        offsets: list[int | None] = []
        for (_, sends_null), group in itertools.groupby(request["records"], one_process):
            records = list(group)
            headers = [("-H", header_option(*header)) for header in headers_of(records[0])]
            _, said = self._run(
                "-P", "-vvv", "-t", request["topic"], "-p", request["partition"], "-z", request["codec"],
                "-D", option(RECORD_ENDS), "-K", option(KEY_ENDS), *itertools.chain(*headers),
                "-X", f"acks={ACKS[request['acks']]}", "-X", f"message.max.bytes={request['bytes_max']}",
                "-X", f"enable.idempotence={str(request['idempotent']).lower()}",
                *(["-Z"] if sends_null else []), sent=input_of(records),
            )  # fmt: skip
            delivered = [int(offset) for offset in DELIVERED.findall(said)]
            if request["acks"] == "0":
                offsets += [None] * len(records)
            elif len(delivered) == len(records):
                offsets += delivered
            else:
                raise RefusedError(None, f"{len(records)} were sent:\n{said}")
        return {"offsets": offsets}

    def _read(self, request: Request, start: int, count: int) -> list[Answer]:
        printed, _ = self._run(
            "-C", "-q", "-t", request["topic"], "-p", request["partition"], "-o", start, "-c", count,
            "-f", FORMAT,
        )  # fmt: skip
        records = []
        while printed:
            line, _, printed = printed.partition(b"\n")
            offset, timestamp, key_bytes, value_bytes, headers = line.split(b" ", 4)
            key, printed = cut(printed, int(key_bytes))
            value, printed = cut(printed, int(value_bytes))
            assert printed[:1] == b"\n", printed[:100]
            printed = printed[1:]
            records.append(as_record(int(offset), int(timestamp), key, value, headers_from(headers)))
        return records

    def consume(self, request: Request) -> Answer:
        return {"records": self._read(request, request["from"], request["count"])}

    def committed(self, request: Request) -> Answer:
        """Reads what is committed, as it always does."""
        return {"records": self._read(request, 0, request["count"])}

    def seek(self, request: Request) -> Answer:
        return {"records": [*itertools.chain(*(self._read(request, at, 1) for at in request["offsets"]))]}

    def _query(self, request: Request, timestamp: int) -> int:
        printed, _ = self._run("-Q", "-t", f"{request['topic']}:{request['partition']}:{timestamp}")
        found = FOUND.search(printed.decode())
        assert found is not None, printed
        return int(found[1])

    def times(self, request: Request) -> Answer:
        found = [self._query(request, timestamp) for timestamp in request["timestamps"]]
        return {"offsets": [None if offset == NO_OFFSET else offset for offset in found]}

    def bounds(self, request: Request) -> Answer:
        return {"start": self._query(request, -2), "end": self._query(request, -1)}

    def _metadata(self, *arguments: str) -> Any:
        printed, _ = self._run("-L", "-J", *arguments)
        return json.loads(printed)

    def list(self, request: Request) -> Answer:
        return {"topics": sorted(topic["topic"] for topic in self._metadata()["topics"])}

    def describe(self, request: Request) -> Answer:
        (described,) = self._metadata("-t", request["topic"])["topics"]
        return {"partitions": len(described["partitions"])}

    def brokers(self, request: Request) -> Answer:
        return {"ids": sorted(broker["id"] for broker in self._metadata()["brokers"])}


def cut(printed: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, printed) if size < 0 else (printed[:size], printed[size:])


def headers_from(printed: bytes) -> list[tuple[str, bytes | None]]:
    pairs = [pair.partition(b"=") for pair in printed.split(b",")] if printed else []
    return [(name.decode(), None if value == b"NULL" else value) for name, _, value in pairs]


def main() -> None:
    client = Kcat(sys.argv[1])
    offered = (
        client.produce, client.consume, client.committed, client.seek, client.times, client.bounds,
        client.list, client.describe, client.brokers,
    )  # fmt: skip
    serve({operation.__name__: operation for operation in offered})


if __name__ == "__main__":
    main()
