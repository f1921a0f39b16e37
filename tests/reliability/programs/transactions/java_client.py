"""Kafka's own Java clients in transactions, asked line by line: the program is ../java/Transacting.java.

    verb        arguments, after the handle of the producer or consumer   answer
    produce     BOOTSTRAP TRANSACTIONAL_ID TIMEOUT_MS
    begin, commit, abort, leave
    send        TOPIC PARTITION VALUE (in base64)
    offset      GROUP TOPIC PARTITION OFFSET
    consume     BOOTSTRAP GROUP ISOLATION
    seek        TOPIC PARTITION OFFSET
    poll                                                                  OFFSET:VALUE …
    committed   TOPIC PARTITION                                           OFFSET

One JVM serves all producers and consumers of a process, and ends with it, whatever is open.
"""

import subprocess
from base64 import b64decode, b64encode
from functools import cache
from itertools import count

from tests.reliability.history import Place, Seen
from tests.reliability.programs.java.compiled import command
from tests.reliability.programs.transactions.client import (
    CALL_SECONDS,
    ISOLATION,
    POLL_SECONDS,
    RECORDS_MAX,
    TIMEOUT_MS,
    Kind,
)
from tests.reliability.programs.values import as_bytes, from_bytes


class JavaError(Exception):
    """What Java's client has raised."""

    def __init__(self, text: str, *, is_fenced: bool) -> None:
        super().__init__(text)
        self.is_fenced = is_fenced


class Jvm:
    """One request at a time, from one thread."""

    def __init__(self) -> None:
        limits = (int(CALL_SECONDS * 1000), int(POLL_SECONDS * 1000), RECORDS_MAX)
        self._process = subprocess.Popen(
            command("Transacting", *map(str, limits)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii", errors="backslashreplace",
        )  # fmt: skip
        self._handles = count()

    def next_handle(self) -> str:
        return str(next(self._handles))

    def ask(self, verb: str, handle: str, *arguments: object) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join([verb, handle, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        return read_answer(self._process.stdout.readline())


def read_answer(line: str) -> list[str]:
    """What was asked for.  Raises JavaError if the client refused, EOFError if there is no answer."""
    if not line.endswith("\n"):
        raise EOFError("the JVM has ended")
    word, *found = line.rstrip("\n").split("\t")
    if word == "refused":
        raise JavaError(found[1], is_fenced=found[0] == "fenced")
    assert word == "ok", line
    return found


def read_record(text: str) -> Seen:
    offset, _, content = text.partition(":")
    return Seen(int(offset), from_bytes(b64decode(content)))


@cache
def jvm() -> Jvm:
    return Jvm()


class JavaWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._handle = jvm().next_handle()
        self._ask("produce", bootstrap, transactional_id, TIMEOUT_MS)

    def _ask(self, verb: str, *arguments: object) -> None:
        jvm().ask(verb, self._handle, *arguments)

    def begin(self) -> None:
        self._ask("begin")

    def send(self, place: Place, value: str) -> None:
        self._ask("send", place.topic, place.partition, b64encode(as_bytes(value)).decode("ascii"))

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        self._ask("offset", group, place.topic, place.partition, offset)

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def leave(self) -> None:
        self._ask("leave")


class JavaReader:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._handle = jvm().next_handle()
        jvm().ask("consume", self._handle, bootstrap, group, ISOLATION)

    def seek(self, place: Place, offset: int) -> None:
        jvm().ask("seek", self._handle, place.topic, place.partition, offset)

    def poll(self) -> list[Seen]:
        return [read_record(each) for each in jvm().ask("poll", self._handle)]

    def committed(self, place: Place) -> int:
        (found,) = jvm().ask("committed", self._handle, place.topic, place.partition)
        return int(found)


def is_fenced(error: BaseException) -> bool:
    return isinstance(error, JavaError) and error.is_fenced


KIND = Kind((JavaError,), is_fenced, JavaWriter, JavaReader)
