"""confluent-kafka in transactions."""

import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.reliability.history import Place, Seen
from tests.reliability.programs.librdkafka import COMMON
from tests.reliability.programs.transactions.client import (
    CALL_SECONDS,
    ISOLATION,
    POLL_SECONDS,
    RECORDS_MAX,
    TIMEOUT_MS,
    Kind,
)
from tests.reliability.programs.values import as_bytes, from_bytes

RETRIES_SECONDS = 60.0
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError._FATAL)


def insist(call: Callable[[], object]) -> None:
    """Calls again while the client says that it may be tried again."""
    deadline = time.monotonic() + RETRIES_SECONDS
    while True:
        try:
            call()
        except KafkaException as refusal:
            if not refusal.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


class ConfluentWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 2,
                **COMMON,
            }
        )
        insist(partial(self._producer.init_transactions, CALL_SECONDS))

    def begin(self) -> None:
        insist(self._producer.begin_transaction)

    def send(self, place: Place, value: str) -> None:
        self._producer.produce(place.topic, as_bytes(value), partition=place.partition)
        self._producer.poll(0)

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        asker = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **COMMON})
        metadata = asker.consumer_group_metadata()
        asker.close()
        at = [TopicPartition(*place, offset)]
        insist(lambda: self._producer.send_offsets_to_transaction(at, metadata, CALL_SECONDS))

    def commit(self) -> None:
        insist(partial(self._producer.commit_transaction, CALL_SECONDS))

    def abort(self) -> None:
        insist(partial(self._producer.abort_transaction, CALL_SECONDS))

    def leave(self) -> None:
        self._producer.purge()
        del self._producer


class ConfluentReader:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": ISOLATION,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                **COMMON,
            }
        )

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.assign([TopicPartition(*place, offset)])

    def poll(self) -> list[Seen]:
        seen = []
        for message in self._consumer.consume(RECORDS_MAX, POLL_SECONDS):
            offset = message.offset()
            if message.error() is None and offset is not None:
                seen.append(Seen(offset, from_bytes(message.value() or b"")))
        return seen

    def committed(self, place: Place) -> int:
        (found,) = self._consumer.committed([TopicPartition(*place)], CALL_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return max(found.offset, 0)


def is_fenced(error: BaseException) -> bool:
    told = error.args[0] if isinstance(error, KafkaException) else None
    return told is not None and (told.fatal() or told.code() in FENCED)


KIND = Kind((KafkaException, BufferError), is_fenced, ConfluentWriter, ConfluentReader)
