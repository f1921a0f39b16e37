"""Where Spark's JVM writes its errors: into the log of a directory, or on, but for what says nothing.

A JVM inherits stderr when it is started, and its workers from it; so fd 2 of this process is another one for
that moment.  With a directory it is the log's file.  Without one it is a pipe, which a thread reads for as
long as the JVM lives and passes on to this process's own stderr line by line, but for the lines of NOISE:
Java says them at every start because Spark asks for a module that is not final yet, and nobody can do
anything about it.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Final

LOG_FILE: Final = "spark.log"
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer one is passed on in pieces."""
LAST_WORDS_SECONDS: Final = 2.0
NOISE: Final = (b"WARNING: Using incubator modules: ",)

_relay: threading.Thread | None = None
"""Of the JVM there is, or was."""


@contextlib.contextmanager
def stderr_lent(directory: str | None) -> Iterator[None]:
    """What is started in this block has another stderr, for good; this process has its own again after it."""
    sink = _relayed() if directory is None else _log_file(directory)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)


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
    source, sink = os.pipe()
    _relay = threading.Thread(target=pass_on, args=(source, os.dup(2)), name="dlog-spark-stderr", daemon=True)
    _relay.start()
    return sink


def pass_on(source: int, target: int) -> None:
    """All lines but the noise; both descriptors are closed at the end."""
    with open(source, "rb") as lines, open(target, "wb", buffering=0) as out:
        while line := lines.readline(LINE_BYTES_MAX):
            if not line.startswith(NOISE):
                with contextlib.suppress(OSError):  # whoever read it left; the JVM goes on
                    out.write(line)
