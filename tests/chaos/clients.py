"""Who takes part in a run: clients as pairs of a program and a name; and what each of them has done.

Apache Kafka's own Java clients take part where their jars can be had.  One of them transforms in the place
of another kind, which the seed draws, since each partition of the input has one transformer; one is a member
of a group in the place of the second of a kind, since each member must have something to read.  A group that
speaks the protocol of KIP-848 is there with them, and our own client is a member of it, too.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.chaos import transactions
from tests.reliability.history import History, Outcome

Client = tuple[str, str]

GROUPS = ("readers", "others")
PLAIN: Sequence[Client] = (
    ("producing", "p-confluent"),
    ("producing_asyncio", "p-aiokafka"),
    ("producing_python", "p-kafka-python"),
    ("producing_own", "p-own"),
    ("consuming", "c-confluent"),
    ("consuming_own", "c-own"),
    ("grouping", "readers.confluent.range"),
    ("grouping", "readers.confluent-2.range"),
    ("grouping_python", "others.kafka-python.range"),
    ("grouping", "others.confluent.range"),
    ("grouping_asyncio", "others.aiokafka.range"),
    ("grouping_own", "readers.own.range"),
)
SECOND = ("grouping", "readers.confluent-2.range")
JAVA_GROUP = "newer"
JAVA: Sequence[Client] = (
    ("producing_java", "p-java"),
    ("consuming_java", "c-java"),
    ("grouping_java", "readers.java.range"),
    ("grouping_java", f"{JAVA_GROUP}.java.consumer"),
    ("grouping_own", f"{JAVA_GROUP}.own.consumer"),
)
JAVA_MIXER: Client = ("transactions.mixing", "mixer.java")
TRANSFORMING = "transactions.transforming"


class Taking(NamedTuple):
    """Those who take part."""

    plain: Sequence[Client] = PLAIN
    transactional: Sequence[Client] = transactions.CLIENTS
    groups: Sequence[str] = GROUPS


def clients_of(seed: int, *, has_java: bool) -> Taking:
    if not has_java:
        return Taking()
    replaced = seed % sum(program == TRANSFORMING for program, _ in transactions.CLIENTS)
    transactional = [
        (program, f"transformer.java.{replaced}")
        if program == TRANSFORMING and name.endswith(f".{replaced}")
        else (program, name)
        for program, name in transactions.CLIENTS
    ]
    plain = [each for each in PLAIN if each != SECOND]  # who is one too many in a group has nothing to do
    return Taking((*plain, *JAVA), (*transactional, JAVA_MIXER), (*GROUPS, JAVA_GROUP))


def describe_clients(history: History) -> str:
    """How many records each client, and whoever took its place, wrote with a known end, and read."""
    sent = Counter(_name(send.process) for send in history.sends if send.outcome is Outcome.OK)
    read = Counter[str]()
    for poll in history.polls:
        read[_name(poll.process)] += len(poll.records)
    told = (f"{name} {sent[name]} and {read[name]}" for name in sorted({*sent, *read}))
    return f"records that each wrote and read: {', '.join(told) or 'none'}"


def _name(process: str) -> str:
    return process.replace("+", "")
