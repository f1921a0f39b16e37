"""`dlog group`: consumer groups of a running cluster, over Kafka's protocol.  Only the names are here."""

from distributedlog.cli.lazy import LazyGroup

HELP = """\
Consumer groups of a running cluster: their members, committed offsets and lag.

The cluster is named by --bootstrap, one or more HOST:PORT of its brokers, or by DLOG_BOOTSTRAP in the
environment; without either it is 127.0.0.1:9092, where `dlog dev` starts one.  Any cluster that speaks
Kafka's protocol will do.

\b
dlog group list
dlog group lag billing
dlog group seek billing --topic orders --begin --dry-run
"""

_HERE = "distributedlog.cli.group"

group = LazyGroup(
    name="group",
    help=HELP,
    commands_at={
        "list": (f"{_HERE}.list_:list_groups", "Which groups there are, and their state."),
        "describe": (f"{_HERE}.describe:describe", "Members, and what each of them reads."),
        "lag": (f"{_HERE}.lag:lag", "Show the committed offsets of groups and their lag in records."),
        "exporter": (f"{_HERE}.exporter:exporter", "Serve lag and committed offsets to Prometheus."),
        "seek": (f"{_HERE}.seek:seek", "Let a group go on from somewhere else."),
        "delete": (f"{_HERE}.delete:delete", "Remove groups and their committed offsets."),
    },
)
