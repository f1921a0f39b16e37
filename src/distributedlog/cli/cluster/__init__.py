"""`dlog cluster`: a cluster as a whole.  Only the names of the commands are here."""

from distributedlog.cli.lazy import LazyGroup

HELP = """\
A cluster as a whole: what it is made of, whether it is well, its settings and quotas; and taking over what a
stopped Apache Kafka broker left.

The cluster is named by --bootstrap or DLOG_BOOTSTRAP, as for `dlog topic`; `adopt` needs none, only Kafka's
directories.

\b
dlog cluster health
dlog cluster config set log.retention.ms=86400000
dlog cluster adopt /var/lib/kafka/data --to /var/lib/dlog
"""

_HERE = "distributedlog.cli.cluster"

group = LazyGroup(
    name="cluster",
    help=HELP,
    commands_at={
        "info": (f"{_HERE}.info:info", "Brokers, controllers, features, topics."),
        "health": (f"{_HERE}.health:health", "Is anything wrong, and what to do about it?"),
        "config": (f"{_HERE}.config:group", "Settings of all brokers, or of one."),
        "quotas": (f"{_HERE}.quotas:group", "How much clients may do."),
        "reassign": (f"{_HERE}.reassign:reassign", "Move partitions to other brokers."),
        "balance": (f"{_HERE}.balance:balance", "Share the load evenly among the brokers."),
        "drain": (f"{_HERE}.drain:drain", "Move all replicas off one broker."),
        "restart": (f"{_HERE}.restart:restart", "Restart brokers one at a time."),
        "voters": (f"{_HERE}.voters:group", "Who votes on the metadata; add and remove."),
        "unregister": (f"{_HERE}.unregister:unregister", "Forget a broker that is gone for good."),
        "adopt": (f"{_HERE}.adopt:adopt", "Take over the topics of a stopped Kafka broker."),
    },
)
