"""kafka-python in transactions.

Its calls wait for ever if its own threads have come to a stop, which they do now and then when a coordinator
is killed (3.0 looks through its batches again and again then, and sends none).  So each has a thread of its
own here, and is given up after a while, with its producer.
"""

import contextlib
import threading
from collections.abc import Callable

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, ProducerFencedError
from kafka.producer.future import FutureRecordMetadata
from kafka.structs import OffsetAndMetadata

from tests.reliability.history import Place, Seen
from tests.reliability.programs.transactions.client import (
    CALL_SECONDS,
    ISOLATION,
    POLL_SECONDS,
    RECORDS_MAX,
    TIMEOUT_MS,
    Kind,
)
from tests.reliability.programs.values import as_bytes, from_bytes

DELIVERY_MS, REQUEST_MS = 10_000, 5_000


def bounded(call: Callable[[], object]) -> None:
    """Waits for a call for so long and no longer."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CALL_SECONDS)
    if thread.is_alive():
        raise KafkaTimeoutError(f"{call} has not come back")
    if raised:
        raise raised[0]


class KafkaPythonWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._sends: list[FutureRecordMetadata] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=2,
            max_block_ms=int(CALL_SECONDS * 1000),
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=REQUEST_MS,
            retry_backoff_ms=50,
            metadata_max_age_ms=5_000,
        )
        try:
            bounded(self._producer.init_transactions)
        except KafkaError:
            self.leave()
            raise

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: Place, value: str) -> None:
        self._sends.append(self._producer.send(place.topic, as_bytes(value), partition=place.partition))

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        at = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1)}
        bounded(lambda: self._producer.send_offsets_to_transaction(at, group))

    def commit(self) -> None:
        """It would commit although a record was given up, so that is looked for here."""
        sends, self._sends = self._sends, []
        for each in sends:
            each.get(CALL_SECONDS)
        bounded(self._producer.commit_transaction)

    def abort(self) -> None:
        self._sends = []
        bounded(self._producer.abort_transaction)

    def leave(self) -> None:
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=0)


class KafkaPythonReader:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            isolation_level=ISOLATION,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            retry_backoff_ms=50,
            metadata_max_age_ms=5_000,
        )

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.assign([TopicPartition(*place)])
        self._consumer.seek(TopicPartition(*place), offset)

    def poll(self) -> list[Seen]:
        polled = self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_MAX)
        return [Seen(each.offset, from_bytes(each.value)) for found in polled.values() for each in found]

    def committed(self, place: Place) -> int:
        return self._consumer.committed(TopicPartition(*place), timeout_ms=int(CALL_SECONDS * 1000)) or 0


def is_fenced(error: BaseException) -> bool:
    return isinstance(error, ProducerFencedError)


KIND = Kind((KafkaError,), is_fenced, KafkaPythonWriter, KafkaPythonReader)
