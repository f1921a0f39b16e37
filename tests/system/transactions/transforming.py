"""A program that consumes, transforms and produces in transactions; it may be killed at any point.

    python -m tests.system.transactions.transforming BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID COUNT PER

Each record of the one partition of INPUT becomes one record in each of the two partitions of OUTPUT.  Records
are transformed PER at a time, and their offset is committed with them.
For each transaction a line comes out.

    exit code 0    all COUNT records are transformed
    exit code 3    another instance with the same transactional id has begun: this one is fenced
"""

import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

FENCED = 3
SUFFIXES = (b":a", b":b")
CALL_S = 30.0


class AbortedError(Exception):
    """The transaction cannot be committed: it is begun anew from what was committed before."""


def insist(call: Callable[[], object]) -> None:
    """Calls again while the client says that it may be tried again."""
    while True:
        try:
            call()
        except KafkaException as refusal:
            error = refusal.args[0]
            if error.fatal() or error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                print("fenced", error, flush=True)
                sys.exit(FENCED)
            if error.txn_requires_abort():
                raise AbortedError(str(error)) from refusal
            if not error.retriable():
                raise
        else:
            return


class Transformer:
    def __init__(self, bootstrap: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self._target = target
        self._partition = TopicPartition(source, 0)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        # First, so that what an earlier instance left open is ended before its offsets are looked at.
        insist(lambda: self._producer.init_transactions(CALL_S))

    def run(self, count: int, per: int) -> None:
        position = self._rewind()
        while position < count:
            try:
                position = self._transform(position, min(per, count - position))
                print(position, flush=True)
            except AbortedError as reason:
                print("aborted", reason, flush=True)
                insist(lambda: self._producer.abort_transaction(CALL_S))
                position = self._rewind()
        self._consumer.close()

    def _rewind(self) -> int:
        """Goes to the committed offset, and returns it."""
        while True:
            try:
                (committed,) = self._consumer.committed([self._partition], CALL_S)
            except KafkaException as refusal:
                if refusal.args[0].retriable() or refusal.args[0].code() == KafkaError._TIMED_OUT:
                    continue
                raise
            if committed.error is None:
                break
        position = max(committed.offset, 0)
        self._consumer.assign([TopicPartition(self._partition.topic, 0, position)])
        return position

    def _transform(self, position: int, wanted: int) -> int:
        values: list[bytes] = []
        while len(values) < wanted:
            message = self._consumer.poll(1.0)
            if message is not None and message.error() is None:
                assert message.offset() == position + len(values), "a record is missing, or comes again"
                values.append(message.value() or b"")
        producer = self._producer
        producer.begin_transaction()
        for value in values:
            for partition, suffix in enumerate(SUFFIXES):
                producer.produce(self._target, value + suffix, partition=partition)
        position += len(values)
        offset = [TopicPartition(self._partition.topic, 0, position)]
        metadata = self._consumer.consumer_group_metadata()
        insist(lambda: producer.send_offsets_to_transaction(offset, metadata, CALL_S))
        insist(lambda: producer.commit_transaction(CALL_S))
        return position


if __name__ == "__main__":
    *_names, _count, _per = sys.argv[1:]
    Transformer(*_names).run(int(_count), int(_per))
