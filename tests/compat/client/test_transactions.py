"""Transactions: all of it or nothing, with positions of a group, and one producer of a name at a time."""

from typing import Any

import pytest

from distributedlog import Admin, ProducerFencedError, TopicPartition
from distributedlog.model.errors import DlogError, InvalidTransactionStateError, TransactionAbortableError
from tests.compat.client.faces import Face
from tests.compat.client.reading import WAIT_S, read, read_partition

COMMITTED: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}


def send(producer: Any, topic: str, *values: str, partition: int = 0) -> None:
    for each in values:
        producer.send(topic, each, partition=partition)


def send_and_fail(producer: Any, topic: str, *values: str) -> None:
    with producer.transaction():
        send(producer, topic, *values)
        producer.flush()
        raise ZeroDivisionError


def test_what_is_aborted_is_read_by_nobody_who_reads_committed(face: Face, topic: str, name: str) -> None:
    with face.producer(transactional_id=name) as producer:
        with producer.transaction():
            send(producer, topic, "a", "b")
            send(producer, topic, "elsewhere", partition=1)
        with pytest.raises(ZeroDivisionError):
            send_and_fail(producer, topic, "c")
        with producer.transaction():
            send(producer, topic, "d")
        with producer.transaction():
            pass
    assert [each.value for each in read_partition(face, topic, 0, 3, **COMMITTED)] == [b"a", b"b", b"d"]
    assert [each.value for each in read_partition(face, topic, 1, 1, **COMMITTED)] == [b"elsewhere"]
    assert [each.value for each in read_partition(face, topic, 0, 4)] == [b"a", b"b", b"c", b"d"]


def test_an_open_transaction_holds_up_readers_until_it_ends(face: Face, topic: str, name: str) -> None:
    place = TopicPartition(topic, 0)
    with face.producer(transactional_id=name) as producer, face.consumer(**COMMITTED) as consumer:
        consumer.assign([place])
        producer.begin_transaction()
        send(producer, topic, "held")
        producer.flush()
        assert consumer.poll(300) == []
        assert consumer.end_offsets([place]) == {place: 0}
        producer.commit_transaction()
        assert [each.value for each in read(consumer, 1)] == [b"held"]
        assert consumer.end_offsets([place]) == {place: 2}, "the marker has an offset, too"


@pytest.mark.parametrize("is_committed", [True, False])
def test_positions_of_a_group_are_part_of_it(
    face: Face, topic: str, name: str, admin: Admin, is_committed: bool
) -> None:
    with face.producer() as producer:
        send(producer, topic, *map(str, range(10)))
    settings = {**COMMITTED, "group_id": name, "topics": [topic], "enable_auto_commit": False}
    with face.consumer(**settings) as consumer, face.producer(transactional_id=name) as producer:
        records = read(consumer, 10)
        producer.begin_transaction()
        for each in records:
            producer.send(topic, each.value, partition=2)
        producer.send_offsets(consumer.positions(), consumer.group_metadata())
        (producer.commit_transaction if is_committed else producer.abort_transaction)()
        if not is_committed:
            consumer.seek_to_committed()
            assert [each.offset for each in read(consumer, 10)] == list(range(10)), "the same again"
    found = admin.group_offsets(name)
    assert {each: at.offset for each, at in found.items() if at.offset} == (
        {TopicPartition(topic, 0): 10} if is_committed else {}
    )
    with face.producer() as producer:
        send(producer, topic, "behind it", partition=2)
    written = [*(b"%d" % number for number in range(10) if is_committed), b"behind it"]
    found_values = [each.value for each in read_partition(face, topic, 2, len(written), **COMMITTED)]
    assert found_values == written


def test_a_second_producer_of_the_name_fences_the_first(face: Face, topic: str, name: str) -> None:
    first, second = (face.producer(transactional_id=name) for _ in range(2))
    with second:
        first.begin_transaction()
        send(first, topic, "lost")
        first.flush()
        with second.transaction():
            send(second, topic, "kept")
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
        first.close()
    assert [each.value for each in read_partition(face, topic, 0, 1, **COMMITTED)] == [b"kept"]


def test_a_record_that_is_refused_spoils_the_transaction_and_not_the_producer(
    face: Face, topic: str, name: str
) -> None:
    with face.producer(transactional_id=name) as producer:
        producer.begin_transaction()
        send(producer, topic, "a")
        producer.send(topic, bytes(2_000_000), partition=0)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            send(producer, topic, "b")
    assert [each.value for each in read_partition(face, topic, 0, 1, **COMMITTED)] == [b"b"]


def test_wrong_use_is_told(face: Face, topic: str, name: str) -> None:
    with face.producer(transactional_id=name) as producer:
        with pytest.raises(InvalidTransactionStateError):
            producer.send(topic, "outside").result(WAIT_S)
        with pytest.raises(DlogError):
            producer.commit_transaction()
    with face.producer() as producer, pytest.raises(DlogError, match="transactional_id"):
        producer.begin_transaction()
