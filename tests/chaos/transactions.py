"""The transactional clients of a run, and what is judged of them beside the checker's findings.

    mixers         write to the input in transactions, and read input and output meanwhile
    transformers   one for each partition of the input: they write its function to the output, and commit
                   their offsets with it

All of them abort, give up in the middle, or come back when their successor is at work.  They have topics of
their own, and of each transaction at most some seconds: who does not end it in time finds it aborted.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.brokers import Brokers
from tests.chaos.load import ChaosLoad
from tests.reliability.checker import Finding
from tests.reliability.checks.transformed import not_transformed
from tests.reliability.history import History, Place, Seen
from tests.reliability.load import TIMEOUT_SECONDS, final_read
from tests.reliability.programs.transactions.topics import group_of, made_of, output_of

TOPIC, PARTITIONS = "payments", 3
TOPICS = (TOPIC, output_of(TOPIC))
PROGRAMS = "transactions"
CLIENTS: Sequence[tuple[str, str]] = (
    ("transactions.mixing", "mixer.confluent"),
    ("transactions.mixing", "mixer.own"),
    ("transactions.mixing", "mixer.kafka-python"),
    ("transactions.transforming", "transformer.confluent.0"),
    ("transactions.transforming", "transformer.own.1"),
    ("transactions.transforming", "transformer.aiokafka.2"),
)
REPLICATED: Mapping[str, str] = {"min.insync.replicas": "2"}
STABLE_SECONDS, CARELESS_SECONDS = 60.0, 5.0
"""How long a last stable offset may stand: much longer than a transaction may be open.  Those of careless
clients may be open for longer."""


class TransactionalClients:
    def __init__(
        self,
        load: ChaosLoad,
        cluster: Brokers,
        *,
        is_careless: bool,
        clients: Sequence[tuple[str, str]] = CLIENTS,
    ) -> None:
        self._load = load
        self._cluster = cluster
        self._is_careless = is_careless
        self._clients = clients
        self.final: dict[Place, list[Seen]] = {}
        """All that is committed in their topics, when they have ended."""
        self._committed: dict[Place, int] = {}
        self._hanging: list[str] = []

    def start(self, replicas: int = 3, config: Mapping[str, str] = REPLICATED) -> None:
        for topic in TOPICS:
            self._cluster.create_topic(topic, PARTITIONS, replicas, config)
        for program, name in self._clients:
            self._load.start(program, name, TOPIC)

    def settle(self) -> None:
        """Ends them after all is healed, waits until no transaction is open, and reads everything."""
        for name in self._load.names(PROGRAMS):
            self._load.tell_to_stop(name)
        self._load.take_until_stopped(PROGRAMS, TIMEOUT_SECONDS)
        places = [Place(topic, at) for topic in TOPICS for at in range(PARTITIONS)]
        seconds = CARELESS_SECONDS if self._is_careless else STABLE_SECONDS
        self._hanging = _await_stable(self._cluster, places, seconds)
        for topic in TOPICS:
            self.final |= final_read(self._cluster.bootstrap, topic, PARTITIONS)
        # Where a transaction hangs, its offsets do, too.
        self._committed = {} if self._hanging else _committed(self._cluster)

    def judge(self, history: History) -> list[Finding]:
        """What is found beside that which the checker finds in any history."""
        inputs = {place: records for place, records in self.final.items() if place.topic == TOPIC}
        everything = {place: records[-1].offset + 1 for place, records in inputs.items() if records}
        outputs = not_transformed(history, self._committed or everything, output_of(TOPIC), made_of)
        return [
            *(Finding("hanging LSO", text) for text in self._hanging),
            *(Finding("not transformed", text) for text in outputs),
        ]


def _await_stable(cluster: Brokers, places: Iterable[Place], seconds: float) -> list[str]:
    """Waits until every last stable offset has come to the high watermark; where it has not, in words."""
    deadline = time.monotonic() + seconds
    ends, stable = (
        Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends", "isolation.level": level})
        for level in ("read_uncommitted", "read_committed")
    )
    try:
        waiting = dict.fromkeys(places, "unknown")
        while waiting and time.monotonic() < deadline:
            for place in list(waiting):
                reached, end = _end(stable, place), _end(ends, place)
                waiting[place] = f"{reached} of {end}"
                if reached == end:
                    del waiting[place]
            time.sleep(0.1)
        return [f"the last stable offset of {place} is {where}" for place, where in waiting.items()]
    finally:
        ends.close()
        stable.close()


def _end(consumer: Consumer, place: Place) -> int:
    bounds = consumer.get_watermark_offsets(TopicPartition(*place), TIMEOUT_SECONDS, cached=False)
    assert bounds is not None
    return bounds[1]


def _committed(cluster: Brokers) -> dict[Place, int]:
    """What the transformers' group has committed, when nothing of it is pending any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group_of(TOPIC),
            "isolation.level": "read_committed",
        }
    )
    try:
        asked = [TopicPartition(TOPIC, at) for at in range(PARTITIONS)]
        found = consumer.committed(asked, TIMEOUT_SECONDS)
    finally:
        consumer.close()
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return {Place(each.topic, each.partition): max(each.offset, 0) for each in found}
