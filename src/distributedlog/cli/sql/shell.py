"""Statement after statement in one Spark session: a prompt on a terminal, or what stands on stdin.

On a terminal Spark is started while the first statement is typed, on a thread of its own, and it reads a
topic that is not there, so that its processes run and its classes are loaded before they are needed.  A
statement that is entered sooner waits for that.

| typed               | does                                                                    |
|---------------------|-------------------------------------------------------------------------|
| a statement and `;` | is run; it may have several lines                                       |
| Ctrl-C              | forgets what was typed, or stops the query; a second time it ends dlog  |
| Ctrl-D, exit, quit  | ends                                                                    |
| topics, help        | without a semicolon                                                     |

What goes wrong on a terminal is said, and the next statement can be typed; from stdin it ends the command
with its exit code.  Queries run on Spark's thread: were the main one to wait for the JVM, Ctrl-C would leave
an answer in the connection, and the next query would take it for its own.
"""

import concurrent.futures
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from distributedlog.cli.output import print_line, warn
from distributedlog.cli.sql.answers import NoQueryError, print_answer
from distributedlog.cli.sql.asking import Asker, explained, spark_session
from distributedlog.cli.sql.statements import last_statement, split_statements
from distributedlog.model.errors import DlogError, SparkNotReadyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROMPT: Final = "dlog> "
PROMPT_WITHIN: Final = "  ... "
LOOK_SECONDS: Final = 0.1
STATEMENT_CHARACTERS_MAX: Final = 1024 * 1024
HISTORY_LINES_MAX: Final = 1_000
HELP: Final = """\
SELECT … FROM orders;    a topic, or a table of the pipeline; names with dots or dashes go in backquotes
topics                   the topics there are
SHOW TABLES;             the tables of the pipeline, and the topics that were asked
exit                     or Ctrl-D"""


class Shell:
    def __init__(self, asker: Asker, master: str | None, output: str, limit: int) -> None:
        self._asker = asker
        self._master = master
        self._output = output
        self._limit = limit
        self._ends = contextlib.ExitStack()
        self._spark: SparkSession | None = None

    def run(self) -> int:
        """Runs statements until the input ends; returns the exit code."""
        is_terminal = sys.stdin.isatty()
        self._asker.ends_of_named("")  # a cluster that is not there is noticed before Spark is started
        thread = concurrent.futures.ThreadPoolExecutor(1, "dlog-spark")
        try:
            started = thread.submit(self._start, is_terminal)
            if is_terminal:
                with _history():
                    self._converse(thread, started)
            else:
                for statement in _from_stdin():
                    self._wait(thread.submit(self._ask, statement, started))
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
            self._ends.close()
        return 0

    def _start(self, warms_up: bool) -> None:
        self._spark = self._ends.enter_context(spark_session(self._master))
        if warms_up:
            with explained({}):
                self._asker.warm_up(self._spark)

    def _converse(
        self, thread: concurrent.futures.ThreadPoolExecutor, started: concurrent.futures.Future[None]
    ) -> None:
        click.echo("topics are tables; statements end with ; and help says more, Ctrl-D ends", err=True)
        for statement in self._typed():
            begun = time.monotonic()
            try:
                count = self._wait(thread.submit(self._ask, statement, started))
            except SparkNotReadyError:
                raise
            except (click.ClickException, DlogError) as error:
                reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
                warn(reason, keeps_lines=True)  # Spark's mark stands below the word that is wrong
            else:
                rows = "1 row" if count == 1 else f"{count:,} rows"
                click.echo(f"{rows}, {time.monotonic() - begun:.1f} s", err=True)

    def _ask(self, statement: str, started: concurrent.futures.Future[None]) -> int:
        """Returns how many rows it printed; on Spark's thread."""
        started.result()
        assert self._spark is not None
        ends = self._asker.ends_of_named(statement)
        with explained(ends):
            count = print_answer(self._asker.answer(self._spark, statement, ends), self._output, self._limit)
        sys.stdout.flush()
        return count

    def _wait(self, answer: concurrent.futures.Future[int]) -> int:
        """Waits for the query; the first Ctrl-C stops it, the second is passed on."""
        is_stopped = False
        while not answer.done():
            try:
                concurrent.futures.wait([answer], LOOK_SECONDS)
            except KeyboardInterrupt:
                if is_stopped or self._spark is None or not sys.stdin.isatty():
                    raise
                is_stopped = True
                self._spark.sparkContext.cancelAllJobs()
        if is_stopped and answer.exception() is not None:
            raise QueryStoppedError("stopped")
        return answer.result()

    # --- the terminal --------------------------------------------------------------------------

    def _typed(self) -> Iterator[str]:
        held = ""
        while True:
            try:
                line = _read_line(PROMPT_WITHIN if held else PROMPT)
            except EOFError:
                click.echo(err=True)
                return
            except KeyboardInterrupt:
                held = ""
                click.echo(err=True)
                continue
            if not held and (word := line.strip().rstrip(";").lower()) in ("exit", "quit"):
                return
            if not held and word in ("help", "topics"):
                self._describe(word)
                continue
            held = _checked(f"{held}{line}\n")
            statements, rest = split_statements(held)
            held = rest if last_statement(rest) is not None else ""
            yield from statements

    def _describe(self, word: str) -> None:
        for line in HELP.splitlines() if word == "help" else self._asker.topics():
            print_line(line)
        sys.stdout.flush()


class QueryStoppedError(click.ClickException):
    """The query was stopped by whoever asked it."""


def _from_stdin() -> Iterator[str]:
    held = ""
    for line in sys.stdin:
        statements, held = split_statements(_checked(held + line))
        yield from statements
    if (last := last_statement(held)) is not None:
        yield last


def _checked(text: str) -> str:
    if len(text) > STATEMENT_CHARACTERS_MAX:
        raise NoQueryError(f"a statement has more than {STATEMENT_CHARACTERS_MAX:,} characters")
    return text


def _read_line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    click.echo(prompt, err=True, nl=False)
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.rstrip("\n")


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Keeps the history, so that what was typed can be called back with the arrow keys, also the next
    time."""
    try:
        import readline
    except ImportError:
        yield
        return
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = os.path.join(base, "distributedlog", "sql_history")
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            readline.set_history_length(HISTORY_LINES_MAX)
            readline.write_history_file(path)
