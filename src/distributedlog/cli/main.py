"""The command `dlog`: finds the command asked for, runs it, and turns what goes wrong into one line.

| exit code | meaning                                                                   |
|-----------|---------------------------------------------------------------------------|
| 0         | done; what was asked about is sound                                       |
| 1         | what was asked about is damaged, not there, there already, or failed      |
| 2         | wrong usage: an unknown command, option or setting, a value that cannot be |
| 3         | storage or environment: no cluster, no permission, in use, no room        |
| 130       | interrupted by Ctrl-C                                                     |
| 141       | whoever read the output left (`dlog log dump … | head`)                   |

Which code an error has does not depend on who found it: a value that the cluster refuses is as wrong as one
that is refused here (`WRONG_VALUES`), and a file that is not there is as a topic that is not there.

Data goes to stdout; everything else (errors, warnings, progress) to stderr.  An error is one line that says
what is wrong and what to do; below one that quotes code (`is_quoting`) are the code's lines.  `DLOG_DEBUG=1`
in the environment shows the traceback as well.

Nothing heavy is imported here: command groups are modules that `LazyGroup` imports when they are named.
"""

import os
import sys
from collections.abc import Sequence

import click

from distributedlog._version import __version__
from distributedlog.cli.escaping import escape_controls
from distributedlog.cli.lazy import LazyGroup
from distributedlog.cli.standard_output import discard_stdout, is_stdout_error, prepare_stdout

EXIT_UNSOUND = 1
EXIT_USAGE = 2
EXIT_STORAGE = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
DEBUG_VARIABLE = "DLOG_DEBUG"

HELP = """\
A distributed commit log for Python and Spark that speaks Kafka's protocol and keeps Kafka's files.

\b
To try it, in one terminal and in another:
  dlog dev                              a broker on 127.0.0.1:9092, for every Kafka client
  echo hello | dlog topic produce news  the topic is made on first use
  dlog topic consume news --from beginning

\b
On a directory that a broker, Log.open() or Apache Kafka has written, with no server:
  dlog log verify DIR                   is every byte of it sound?

\b
Exit codes: 0 done, 1 not sound or not there, 2 wrong usage, 3 storage or environment, 130 interrupted.
More: docs/cli.md, and --help on every command.
"""

COMMANDS = {
    "topic": (
        "distributedlog.cli.topic:group",
        "Topics of a running cluster: make, describe, write, read, copy.",
    ),
    "cluster": (
        "distributedlog.cli.cluster:group",
        "A cluster as a whole: health, settings, quotas, taking over Kafka's.",
    ),
    "group": ("distributedlog.cli.group:group", "Consumer groups: who is in them, and what is left to read."),
    "txn": ("distributedlog.cli.txn:group", "Transactions: which there are, and those that hang."),
    "dev": ("distributedlog.cli.dev:dev", "Run a cluster on this machine, for trying things out."),
    "server": ("distributedlog.cli.server:group", "Run one node of a cluster, or make its directory."),
    "gateway": (
        "distributedlog.cli.gateway:gateway",
        "Serve the log over gRPC: no Kafka client needed.",
    ),
    "sql": ("distributedlog.cli.sql.command:sql", "Ask topics with SQL, on Spark."),
    "pipeline": (
        "distributedlog.cli.pipeline:group",
        "Pipelines from topics to tables and topics, on Spark.",
    ),
    "log": ("distributedlog.cli.log:group", "Look into the files of logs, check them, mend them; no server."),
}

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

root = click.version_option(__version__, prog_name="dlog", message="%(prog)s %(version)s")(
    LazyGroup(name="dlog", help=HELP, commands_at=COMMANDS, context_settings=CONTEXT)
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `dlog`; the exit code."""
    _open_closed_streams()
    prepare_stdout()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with root.make_context("dlog", given) as context:  # click's own main would print and exit by itself
            code = root.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except Exception as error:
        return _explain(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """Whoever closed one (`>&-`) wants nothing of it: it leads nowhere, and no file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (for good)


def _explain(error: Exception) -> int:
    """One line on stderr, and the exit code."""
    if is_stdout_error(error):
        discard_stdout()
        if isinstance(error, BrokenPipeError):
            return EXIT_BROKEN_PIPE
    if os.environ.get(DEBUG_VARIABLE) == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    message, code = _describe(error)
    is_quoting = getattr(error, "is_quoting", False)
    shown = message.strip() if is_quoting else " ".join(message.split())
    click.echo(f"dlog: {escape_controls(shown, keeps_lines=True)}", err=True)
    return code


def _describe(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "dlog"
        return f"{error.format_message()} (see {command} --help)", EXIT_USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    from distributedlog.cli.exit_codes import WRONG_VALUES
    from distributedlog.model.errors import CorruptLogError, DlogError, StorageError

    if isinstance(error, WRONG_VALUES):
        return str(error), EXIT_USAGE
    if isinstance(error, StorageError) and not isinstance(error, CorruptLogError):
        return str(error), EXIT_STORAGE
    if isinstance(error, DlogError):
        return str(error), EXIT_UNSOUND
    if is_stdout_error(error) and isinstance(error, OSError):
        return f"stdout: {error.strerror}: what was printed is not all there is", EXIT_STORAGE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        is_missing = isinstance(error, FileNotFoundError)
        return f"{where}{error.strerror or error}", EXIT_UNSOUND if is_missing else EXIT_STORAGE
    kind = type(error).__name__
    return (
        f"a bug in dlog: {kind}: {error}; please report it with what {DEBUG_VARIABLE}=1 shows",
        EXIT_STORAGE,
    )


if __name__ == "__main__":
    sys.exit(main())
