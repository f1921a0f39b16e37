"""Where Spark's JVM writes its errors: into the log of a directory, or on, but for what says nothing.

A JVM inherits stderr when it is started, and its workers from it; so fd 2 of this process is another one for
that moment.  With a directory it is the log's file.  Without one it is a pipe, which a thread reads for as
long as the JVM lives and passes on to this process's own stderr as it comes (a bar of progress never ends its
line), but for the lines of NOISE: Java says them at every start because Spark asks for a module that is not
final yet, and nobody can do anything about it.

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

_relay: threading.Thread | None = None
"""Of the JVM there is, or was."""


@contextlib.contextmanager
def stderr_lent(directory: str | None) -> Iterator[None]:
    """What is started in this block has another stderr, for good; this process has its own again after it."""
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
    """Of whatever has its number."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def pass_on_last_words() -> None:
    """To be called when the JVM has ended: what it said last may still be in the pipe."""
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
        for said in without_noise(iter(lambda: os.read(source, PIECE_BYTES), b"")):
            with contextlib.suppress(OSError):  # whoever read it left; the JVM goes on
                out.write(said)


def without_noise(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """What is said, each part as soon as it is known to be no noise."""
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
