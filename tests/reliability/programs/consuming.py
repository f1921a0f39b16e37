"""confluent-kafka's consumer with a fixed assignment, from the start: BOOTSTRAP TOPIC PARTITIONS NAME.

After every few polls it asks for the latest offset of each partition.  That its position is beyond the end of
the log is what it may never meet: it exits with 1 then.
"""

import sys
import time
from collections import defaultdict

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.reliability.history import LATEST, Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.librdkafka import COMMON
from tests.reliability.programs.stopping import stopping
from tests.reliability.programs.values import from_bytes

POLL_SECONDS = 0.2
ASK_SECONDS = 0.5
RECORDS_MAX = 500
POLLS_PER_QUESTION = 3


def tell(journal: Journal, topic: str, messages: list[Message], invoked_ns: int) -> None:
    records: dict[Place, list[Seen]] = defaultdict(list)
    for message in messages:
        error = message.error()
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            records[Place(topic, partition)].append(Seen(offset, from_bytes(value or b"")))
        elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            sys.exit(str(error))
        else:
            journal.met("poll", error.name(), error.code())
    for place, seen in records.items():
        journal.poll(place, 1, seen, invoked_ns)


def ask_latest(consumer: Consumer, journal: Journal, places: list[TopicPartition]) -> None:
    """Asks for the end alone: `get_watermark_offsets` asks for both ends at once, and where it is refused one
    and told the other, librdkafka (2.16) gives that one as both, and no error."""
    try:
        for place in places:
            invoked_ns = time.monotonic_ns()
            asked = TopicPartition(place.topic, place.partition, OFFSET_END)
            (found,) = consumer.offsets_for_times([asked], timeout=ASK_SECONDS)
            if found.error is not None:
                raise KafkaException(found.error)
            journal.told(Place(place.topic, place.partition), LATEST, found.offset, invoked_ns)
    except KafkaException as error:  # nobody to ask just now
        journal.met("latest offset", error.args[0].name(), error.args[0].code())


def main() -> None:
    bootstrap, topic, partitions, name = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            **COMMON,
        }
    )
    places = [TopicPartition(topic, partition, 0) for partition in range(int(partitions))]
    consumer.assign(places)
    journal, stop, polls = Journal(name), stopping(), 0
    while not stop.is_set():
        invoked_ns = time.monotonic_ns()
        tell(journal, topic, consumer.consume(RECORDS_MAX, POLL_SECONDS), invoked_ns)
        polls += 1
        if polls % POLLS_PER_QUESTION == 0:
            ask_latest(consumer, journal, places)
    consumer.close()


if __name__ == "__main__":
    main()
