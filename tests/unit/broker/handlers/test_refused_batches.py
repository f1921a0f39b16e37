"""What comes behind a batch that was refused for a while is refused as well, until that one has come."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.broker.handlers import _refused_batches
from distributedlog.broker.net.context import ConnectionSession
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.controller.image import ResourceType
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.produce import ProduceResponse
from tests.unit.broker.handlers.data_stage import (
    TOPIC,
    TOPIC_NUMBER,
    DataBroker,
    data_broker,
    produce_request,
)
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.storage.support import batch_of, value_of

ALONE, BOTH = [ME], [ME, OTHER]
REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS
VERSION = 9


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataBroker]:
    with data_broker(tmp_path) as broker:
        broker.metadata.configure(ResourceType.TOPIC, TOPIC, "min.insync.replicas", "2")
        broker.metadata.change(TOPIC_NUMBER, replicas=BOTH, isr=BOTH)
        broker.follow()
        yield broker


def set_isr(broker: DataBroker, isr: list[int]) -> None:
    broker.metadata.change(TOPIC_NUMBER, isr=isr)
    broker.follow()


def send(
    broker: DataBroker, sequence: int, *, producer_id: int = 7, epoch: int = 0, acks: int = 1
) -> ErrorCode:
    batch = batch_of(
        [value_of(sequence)], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return ErrorCode(broker.produce(batch, acks=acks).error_code)


def refuse(broker: DataBroker, *sequences: int) -> None:
    set_isr(broker, ALONE)
    for sequence in sequences:
        assert send(broker, sequence, acks=-1) == REFUSED
    set_isr(broker, BOTH)


def test_the_next_batches_hear_the_same_until_the_first_comes_again(broker: DataBroker) -> None:
    assert send(broker, 0) == ErrorCode.NONE
    refuse(broker, 1)
    assert [send(broker, 2), send(broker, 3)] == [REFUSED, REFUSED]
    assert [send(broker, each) for each in (1, 2, 3)] == [ErrorCode.NONE] * 3
    assert broker.partition.log_end_offset == 4
    assert send(broker, 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "nothing was refused before this one"


def test_of_several_that_were_refused_the_first_counts(broker: DataBroker) -> None:
    assert send(broker, 0) == ErrorCode.NONE
    refuse(broker, 1, 2, 3)
    assert send(broker, 3) == REFUSED
    assert [send(broker, each) for each in (1, 2, 3)] == [ErrorCode.NONE] * 3


def begin(broker: DataBroker, sequence: int) -> PendingResponse:
    """Writes a batch with acks=all, whose response waits for the follower."""
    batch = batch_of([value_of(sequence)], producer_id=7, producer_epoch=0, base_sequence=sequence)
    pending = broker.begin(produce_request(batch, acks=-1), VERSION)
    assert isinstance(pending, PendingResponse)
    assert not pending.is_decided
    return pending


def code_of(broker: DataBroker, pending: PendingResponse) -> ErrorCode:
    response = broker.finish(pending, VERSION, ProduceResponse)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_batches_that_were_written_before_the_refused_one_are_repeated_in_their_order(
    broker: DataBroker,
) -> None:
    """They were not acknowledged either: the client sends them again, before the refused one."""
    written = [begin(broker, each) for each in (0, 1)]
    set_isr(broker, ALONE)
    written_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert [code_of(broker, each) for each in written] == [written_code] * 2
    assert send(broker, 2, acks=-1) == REFUSED
    set_isr(broker, BOTH)
    assert send(broker, 3) == REFUSED
    assert [send(broker, each) for each in (0, 1, 2, 3)] == [ErrorCode.NONE] * 4
    assert broker.partition.log_end_offset == 4, "nothing is there twice"


def test_what_an_isolated_leader_wrote_is_repeated_when_it_leads_on(broker: DataBroker) -> None:
    """It refuses alike before and after the append, and may keep its leadership and its connections."""
    written = begin(broker, 0)
    broker.partition.set_heard(frozenset())
    assert code_of(broker, written) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert send(broker, 1, acks=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.partition.set_heard(None)
    assert send(broker, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [send(broker, each) for each in (0, 1, 2)] == [ErrorCode.NONE] * 3
    assert broker.partition.log_end_offset == 3


def test_sequences_begin_anew_behind_the_highest(broker: DataBroker) -> None:
    highest = 2**31 - 1
    assert send(broker, highest - 1) == ErrorCode.NONE
    refuse(broker, highest)
    assert send(broker, 0) == REFUSED
    assert [send(broker, each) for each in (highest - 1, highest, 0)] == [ErrorCode.NONE] * 3
    refuse(broker, 1)
    assert send(broker, highest) == ErrorCode.NONE, "it stands before 1, and is repeated"


def test_the_first_batch_of_a_producer_is_not_overtaken(broker: DataBroker) -> None:
    """A log that does not know the producer would take any batch for its first."""
    refuse(broker, 0)
    assert send(broker, 1) == REFUSED
    assert [send(broker, 0), send(broker, 1)] == [ErrorCode.NONE] * 2


def test_a_batch_that_another_leader_has_written_meanwhile_is_not_waited_for(broker: DataBroker) -> None:
    assert send(broker, 0) == ErrorCode.NONE
    refuse(broker, 1)
    other_way = ConnectionSession()
    here, broker.session = broker.session, other_way
    assert send(broker, 1) == ErrorCode.NONE
    broker.session = here
    assert send(broker, 2) == ErrorCode.NONE
    assert here.refused_batches == {}


def test_other_producers_epochs_and_connections_are_not_held_up(broker: DataBroker) -> None:
    refuse(broker, 0)
    assert send(broker, 0, producer_id=8) == ErrorCode.NONE
    assert send(broker, 0, epoch=1) == ErrorCode.NONE
    assert broker.produce(batch_of([value_of(5)])).error_code == ErrorCode.NONE
    refuse(broker, 1)
    broker.session = ConnectionSession()
    assert send(broker, 2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_is_refused_for_good_is_not_remembered_and_the_rest_is_bounded(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(broker, 0) == ErrorCode.NONE
    assert send(broker, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    set_isr(broker, ALONE)
    assert broker.produce(batch_of([value_of(5)]), acks=-1).error_code == REFUSED
    assert broker.session.refused_batches == {}
    monkeypatch.setattr(_refused_batches, "REFUSED_MAX", 2)
    for producer_id in (11, 12, 13):
        assert send(broker, 0, producer_id=producer_id, acks=-1) == REFUSED
    assert [key[-1] for key in broker.session.refused_batches] == [12, 13]
