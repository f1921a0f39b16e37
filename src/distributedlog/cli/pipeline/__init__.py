"""`dlog pipeline`: from topics to tables and to other topics, on Spark.

Each command is a module of its own, imported when it is used: only `run`, `validate`, `compact`
and `prepare` need Spark.
"""

from distributedlog.cli.lazy import LazyGroup

HELP = """\
Pipelines from topics to tables and to other topics, on Spark (docs/pipelines.md).

\b
dlog pipeline init shop
cd shop
dlog topic produce orders < sample.jsonl
dlog pipeline run
dlog pipeline status
"""

_HERE = "distributedlog.cli.pipeline"

group = LazyGroup(
    name="pipeline",
    help=HELP,
    commands_at={
        "init": (f"{_HERE}.init:init", "Write a project that works at once."),
        "run": (f"{_HERE}.run:run", "Run it, once or again and again."),
        "validate": (f"{_HERE}.validate:validate", "What would run, and what is wrong with it."),
        "status": (
            f"{_HERE}.status:status",
            "Rows in and out, lag, batch time, last error; as a picture too.",
        ),
        "health": (f"{_HERE}.health:health", "Are pipelines well?  The exit code says it."),
        "compact": (f"{_HERE}.compact:compact", "Merge the small files of its tables."),
        "prepare": (f"{_HERE}.prepare:prepare", "Make Spark start sooner from now on."),
        "reset": (f"{_HERE}.reset:reset", "Forget its tables and how far it has come."),
    },
)
