"""What is asked of every client, and what a client does not offer.

`ABSENT` is the only way for a cell of the matrix to be empty, and it says why.
"""

from collections.abc import Mapping

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMPS = "timestamps"
IN_CORPUS = (
    "keys",
    "null keys",
    "empty keys",
    "one byte",
    "empty values",
    "binary values",
    "many in a batch",
    "large values",
    "tombstones",
    "null key and value",
    "headers",
    "repeated headers",
    "null headers",
    "headers on a tombstone",
    TIMESTAMPS,
)
"""Traits of records: a client has one if all clients read what it wrote."""
PRODUCE = (
    "largest batch",
    "too large is refused",
    "idempotent",
    "acks=0",
    "acks=1",
    "topic made on first use",
)
CONSUME = (
    "consume by assign",
    "seek back and forth",
    "offsets by timestamp",
    "start and end offsets",
    "long poll",
)
ADMIN = (
    "create topic",
    "refused: topic exists",
    "describe topic",
    "list topics",
    "delete topic",
    "add partitions",
    "set topic config",
    "describe topic config",
    "describe cluster",
    "validate topic only",
    "delete records",
    "offsets by admin",
    "refused: bad config",
    "unset topic config",
    "describe broker config",
    "set broker config",
    "elect leaders",
    "describe topic partitions",
    "describe log dirs",
    "describe producers",
    "describe quorum",
    "describe features",
    "update features",
    "list config resources",
)
TRANSACTIONS = (
    "transactions",
    "offsets in a transaction",
    "a second producer takes over",
    "read committed",
)
FEATURES = (
    *(f"produce {codec}" for codec in CODECS),
    *IN_CORPUS,
    *PRODUCE,
    *CONSUME,
    *TRANSACTIONS,
    *ADMIN,
)

_KCAT_ADMIN = "has no such command"
_NO_CALL = "has no such call"
_ADMIN_OF_ALL = (
    "validate topic only",
    "delete records",
    "offsets by admin",
    "refused: bad config",
    "unset topic config",
    "describe broker config",
    "set broker config",
)
_ADMIN_OF_FEW = ADMIN[ADMIN.index("elect leaders") :]
_NULL_HEADER = "takes no null as a header's value"
_NEITHER = "takes no record with neither key nor value"
ABSENT: Mapping[tuple[str, str], str] = {
    ("aiokafka", "null key and value"): _NEITHER,
    ("kafka-python", "null key and value"): _NEITHER,
    ("kcat", "null key and value"): _NEITHER,
    ("kafka-python", "null headers"): _NULL_HEADER,
    ("KafkaJS", "null headers"): _NULL_HEADER,
    ("kcat", TIMESTAMPS): "sets no timestamps",
    ("kcat", "create topic"): _KCAT_ADMIN,
    ("kcat", "refused: topic exists"): _KCAT_ADMIN,
    ("kcat", "delete topic"): _KCAT_ADMIN,
    ("kcat", "add partitions"): _KCAT_ADMIN,
    ("kcat", "set topic config"): _KCAT_ADMIN,
    ("kcat", "describe topic config"): _KCAT_ADMIN,
    **{("kcat", feature): _KCAT_ADMIN for feature in (*_ADMIN_OF_ALL, *_ADMIN_OF_FEW)},
    **{(client, feature): _NO_CALL for client in ("aiokafka", "KafkaJS") for feature in _ADMIN_OF_FEW},
    **{("confluent-kafka", feature): _NO_CALL for feature in _ADMIN_OF_FEW[1:]},
    ("aiokafka", "offsets by admin"): _NO_CALL,
    ("distributedlog", "describe topic partitions"): _NO_CALL,
    **{("kcat", feature): _KCAT_ADMIN for feature in TRANSACTIONS[:-1]},
}


def offering(feature: str, clients: tuple[str, ...]) -> list[str]:
    return [client for client in clients if (client, feature) not in ABSENT]
