"""Our own client in transactions."""

import contextlib

from distributedlog import Consumer, DlogError, Producer, TopicPartition
from distributedlog.model.errors import ApplicationRecoverableError
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


class OwnWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = Producer(
            bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=2,
            delivery_timeout_ms=int(CALL_SECONDS * 1000),
            request_timeout_ms=5_000,
        )
        try:
            self._producer.init_transactions()
        except DlogError:
            self.leave()
            raise

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: Place, value: str) -> None:
        self._producer.send(place.topic, as_bytes(value), partition=place.partition)

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        self._producer.send_offsets({TopicPartition(*place): offset}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def leave(self) -> None:
        with contextlib.suppress(DlogError):
            self._producer.close()


class OwnReader:
    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer(
            bootstrap,
            group_id=group,
            isolation_level=ISOLATION,
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=5_000,
        )

    def seek(self, place: Place, offset: int) -> None:
        at = TopicPartition(*place)
        self._consumer.assign([at])
        self._consumer.seek(at, offset)

    def poll(self) -> list[Seen]:
        polled = self._consumer.poll(int(POLL_SECONDS * 1000), RECORDS_MAX)
        return [Seen(each.offset, from_bytes(each.value or b"")) for each in polled]

    def committed(self, place: Place) -> int:
        at = TopicPartition(*place)
        return max(self._consumer.committed([at]).get(at, 0), 0)


def is_fenced(error: BaseException) -> bool:
    return isinstance(error, ApplicationRecoverableError)


KIND = Kind((DlogError,), is_fenced, OwnWriter, OwnReader)
