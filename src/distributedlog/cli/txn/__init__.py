"""`dlog txn`: transactions of a running cluster, over Kafka's protocol.  Only the names are here."""

from distributedlog.cli.lazy import LazyGroup

HELP = """\
Transactions of a running cluster: which there are, what one is at, and those that hang.

The cluster is named by --bootstrap, one or more HOST:PORT of its brokers, or by DLOG_BOOTSTRAP in the
environment; without either it is 127.0.0.1:9092, where `dlog dev` starts one.

\b
dlog txn list --state Ongoing
dlog txn describe transfers
dlog txn find-hanging --topic orders
"""

_HERE = "distributedlog.cli.txn"

group = LazyGroup(
    name="txn",
    help=HELP,
    commands_at={
        "list": (f"{_HERE}.list_:list_transactions", "Which transactional ids there are, and their state."),
        "describe": (f"{_HERE}.describe:describe", "What a transaction is at, and its partitions."),
        "find-hanging": (f"{_HERE}.hanging:find_hanging", "Find transactions that nobody would end."),
        "abort": (f"{_HERE}.abort:abort", "End a transaction that hangs in a partition."),
    },
)
