"""Where Spark's JVM writes its errors: into the log of a directory, or on, but for what says nothing.

A JVM inherits stderr when it is started, and its workers from it; so fd 2 of this process is another one for
that moment.  With a directory it is the log's file.  Without one it is a pipe, which a thread reads for as
long as the JVM lives and passes on to this process's own stderr as it comes (a bar of progress never ends its
line), but for what is noise:

| noise                           | who says it                                                              |
|---------------------------------|--------------------------------------------------------------------------|
| lines of NOISE                  | Java at every start: Spark asks for a module that is not final yet       |
| a traceback of Spark's daemon   | a worker whose task was over before all its rows were wanted (LIMIT):    |
| that ends with one of           | the JVM has closed the connection on which the rest was to be sent, with |
| CONNECTION_CLOSED               | or without having read what was there                                    |

A traceback is held back until its last line is there, then it is passed on as a whole or not at all.  Those
of several workers may come line by line mixed.

A process that was started without a stderr (`2>&-`) has nothing to pass on to; its number may be any file's.
"""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Final

LOG_FILE: Final = "spark.log"
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
LAST_WORDS_SECONDS: Final = 2.0
NOISE: Final = (b"WARNING: Using incubator modules: ",)
NOISE_BYTES_MAX: Final = max(map(len, NOISE))
TRACEBACK: Final = b"Traceback (most recent call last):"
TRACEBACK_BYTES_MAX: Final = 64 * 1024
DAEMON: Final = b"pyspark/daemon.py"
CONNECTION_CLOSED: Final = (b"BrokenPipeError: ", b"ConnectionResetError: ")

_relay: threading.Thread | None = None
"""The relay of the JVM there is, or was."""


@contextlib.contextmanager
def stderr_lent(directory: str | None) -> Iterator[None]:
    """Lends another stderr, for good, to what is started in this block; this process has its own again after
    it."""
    if sys.stderr is not None:
        sys.stderr.flush()
    kept = _second_of_stderr()
    try:
        sink = _relayed() if directory is None else _log_file(directory)
        try:
            os.dup2(sink, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(sink)
    finally:
        os.close(kept)


def _second_of_stderr() -> int:
    """Returns a second descriptor of whatever has stderr's number."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def pass_on_last_words() -> None:
    """Passes on what the JVM said last, which may still be in the pipe; called when the JVM has ended."""
    global _relay
    relay, _relay = _relay, None
    if relay is not None:
        relay.join(LAST_WORDS_SECONDS)


def _log_file(directory: str) -> int:
    path = os.path.join(directory, LOG_FILE)
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path) > LOG_BYTES_MAX:
            os.replace(path, path + ".1")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _relayed() -> int:
    """The end of a pipe to write to; the thread ends when the last who has it closed it."""
    global _relay
    target = os.open(os.devnull, os.O_WRONLY) if sys.__stderr__ is None else os.dup(2)
    source, sink = os.pipe()
    _relay = threading.Thread(target=pass_on, args=(source, target), name="dlog-spark-stderr", daemon=True)
    _relay.start()
    return sink


def pass_on(source: int, target: int) -> None:
    """All but the noise; both descriptors are closed at the end."""
    with open(source, "rb", buffering=0), open(target, "wb", buffering=0) as out:
        pieces = iter(lambda: os.read(source, PIECE_BYTES), b"")
        for piece in without_closed_connections(without_noise(pieces)):
            with contextlib.suppress(OSError):  # whoever read it left; the JVM goes on
                out.write(piece)


def without_noise(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Returns what is said, each part as soon as it is known to be no noise."""
    held, is_within_line = b"", False
    for piece in pieces:
        lines = io.BytesIO(held + piece).readlines()
        held = b""
        for line in lines:
            is_ended = line.endswith(b"\n")
            if not is_within_line and _may_be_noise(line):
                held = b"" if is_ended else line[:NOISE_BYTES_MAX]
            else:
                is_within_line = not is_ended
                yield line
    if not held.startswith(NOISE):
        yield held


def _may_be_noise(line: bytes) -> bool:
    return line.startswith(NOISE) or any(noise.startswith(line) for noise in NOISE)


def without_closed_connections(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """All but the tracebacks of workers whose rows nobody wanted any more; parts of lines may come apart."""
    held, begun = b"", b""
    is_within_line, was_dropped = False, False
    for piece in pieces:
        if is_within_line:
            is_within_line = not piece.endswith(b"\n")
            yield piece
            continue
        begun += piece
        if (
            (held or _may_be_unwanted(begun))
            and not begun.endswith(b"\n")
            and len(begun) < TRACEBACK_BYTES_MAX
        ):
            continue
        line, begun = begun, b""
        if line.startswith(TRACEBACK) or (held and line.startswith(b" ") and len(held) < TRACEBACK_BYTES_MAX):
            held += line
        elif line.startswith(CONNECTION_CLOSED) and (_is_daemons(held) if held else was_dropped):
            held, was_dropped = b"", True
        else:
            is_within_line = not line.endswith(b"\n")
            yield held + line
            held, was_dropped = b"", False
    yield held + begun


def _may_be_unwanted(begun: bytes) -> bool:
    return any(what.startswith(begun[: len(what)]) for what in (TRACEBACK, *CONNECTION_CLOSED))


def _is_daemons(traceback: bytes) -> bool:
    """Returns whether every file in it is the daemon's."""
    files = [line for line in traceback.splitlines() if line.startswith(b"  File ")]
    return bool(files) and all(DAEMON in line for line in files)
