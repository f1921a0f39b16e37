"""`dlog topic`: topics of a running cluster, over Kafka's protocol.  Only the names are here."""

from distributedlog.cli.lazy import LazyGroup

HELP = """\
Topics of a running cluster: make them, look at them, write to them, read from them.

The cluster is named by --bootstrap, one or more HOST:PORT of its brokers, or by DLOG_BOOTSTRAP in the
environment; without either it is 127.0.0.1:9092, where `dlog dev` starts one.  Any cluster that speaks
Kafka's protocol will do.

\b
dlog topic create orders -p 3
echo 'alice:{"item": 7}' | dlog topic produce orders -k :
dlog topic consume orders -e -f '%p/%o %k %v'
"""

_HERE = "distributedlog.cli.topic"

group = LazyGroup(
    name="topic",
    help=HELP,
    commands_at={
        "list": (f"{_HERE}.list_:list_topics", "Which topics there are."),
        "create": (f"{_HERE}.create:create", "Make topics."),
        "describe": (f"{_HERE}.describe:describe", "Partitions, leaders, replicas, offsets, settings."),
        "delete": (f"{_HERE}.delete:delete", "Remove topics and everything in them."),
        "alter": (f"{_HERE}.alter:alter", "Change settings, or give more partitions."),
        "trim": (f"{_HERE}.trim:trim", "Delete the oldest records."),
        "produce": (f"{_HERE}.produce:produce", "Write records, one a line."),
        "consume": (f"{_HERE}.consume:consume", "Read records."),
        "export": (f"{_HERE}.export:export", "Write records into a file, nothing lost."),
        "import": (f"{_HERE}.import_:import_records", "Write the records of such a file into a topic."),
        "replay": (f"{_HERE}.replay:replay", "Write records to another topic, as fast as they came."),
        "analyze": (f"{_HERE}.analyze:analyze", "Sizes, rates, keys, order: what a topic holds."),
    },
)
