"""aiokafka in transactions: each call on a loop that runs for so long only, as nothing else is to go on."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from confluent_kafka import KafkaException

from tests.reliability.history import Place, Seen
from tests.reliability.programs.transactions.client import (
    CALL_SECONDS,
    ISOLATION,
    POLL_SECONDS,
    RECORDS_MAX,
    TIMEOUT_MS,
    Kind,
)
from tests.reliability.programs.transactions.confluent import ConfluentReader
from tests.reliability.programs.values import as_bytes, from_bytes

RUNNER = asyncio.Runner()
LEAVE_SECONDS = 2.0


def _run(work: Coroutine[Any, Any, Any], seconds: float = 2 * CALL_SECONDS) -> Any:
    return RUNNER.run(asyncio.wait_for(work, seconds))


class AiokafkaWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        async def make() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                linger_ms=2,
                request_timeout_ms=int(CALL_SECONDS * 1000),
                retry_backoff_ms=50,
            )

        self._producer = _run(make())
        try:
            _run(self._producer.start())
        except BaseException:
            self.leave()
            raise

    def begin(self) -> None:
        _run(self._producer.begin_transaction())

    def send(self, place: Place, value: str) -> None:
        _run(self._producer.send_and_wait(place.topic, as_bytes(value), partition=place.partition))

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        _run(self._producer.send_offsets_to_transaction({TopicPartition(*place): offset}, group))

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())

    def leave(self) -> None:
        with contextlib.suppress(TimeoutError, KafkaError):
            _run(self._producer.stop(), LEAVE_SECONDS)


class AiokafkaReader:
    def __init__(self, bootstrap: str, group: str) -> None:
        async def make() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                isolation_level=ISOLATION,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=100,
                retry_backoff_ms=50,
            )
            await consumer.start()
            return consumer

        self._consumer = _run(make())
        self._asker = ConfluentReader(bootstrap, group)

    def seek(self, place: Place, offset: int) -> None:
        async def seek() -> None:
            self._consumer.assign([TopicPartition(*place)])
            self._consumer.seek(TopicPartition(*place), offset)

        _run(seek())

    def poll(self) -> list[Seen]:
        polled = _run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_MAX))
        return [Seen(each.offset, from_bytes(each.value)) for found in polled.values() for each in found]

    def committed(self, place: Place) -> int:
        """Asked of another client: aiokafka 0.14 overlooks an error of the whole response, and takes a group
        that is being loaded, or that is led elsewhere by now, for one that has committed nothing."""
        return self._asker.committed(place)


def is_fenced(error: BaseException) -> bool:
    return isinstance(error, ProducerFenced)


# It asserts that it may still commit, where others raise.
KIND = Kind(
    (KafkaError, TimeoutError, AssertionError, KafkaException), is_fenced, AiokafkaWriter, AiokafkaReader
)
