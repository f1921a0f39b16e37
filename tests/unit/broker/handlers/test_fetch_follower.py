"""A broker that has proved who it is fetches as a follower: it reads all, and moves the high watermark."""

from pathlib import Path

import pytest

from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.peers.authentication import BrokerIdentity
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import StaleBrokerEpochError
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse
from distributedlog.protocol.messages.list_offsets import ListOffsetsResponse
from distributedlog.replication.contract import ACKS_ALL, OffsetSpec
from tests.unit.broker.handlers.data_requests import (
    CLOSING,
    fetch_request,
    offsets_request,
    only,
    values,
    wanted,
)
from tests.unit.broker.handlers.data_stage import TOPIC_NUMBER, DataBroker, data_broker, produce_request
from tests.unit.broker.handlers.test_sasl_handshake import OTHERS_EPOCH, prove
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.storage.support import batch_of, value_of

VERSION = 18
OPENING = 0


def follow(broker: DataBroker) -> None:
    """The other broker is a replica in sync, and has proved who it is."""
    broker.register(OTHER, 9_002)
    broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=[ME, OTHER])
    broker.follow()
    assert prove(broker).error_code == ErrorCode.NONE


def ask(offset: int, session: tuple[int, int] = (0, CLOSING), max_wait_ms: int = 0) -> FetchRequest:
    return fetch_request(
        wanted(offset),
        session=session,
        max_wait_ms=max_wait_ms,
        replica_id=OTHER,
        replica_epoch=OTHERS_EPOCH,
    )


def test_a_follower_reads_what_is_not_committed_and_commits_it(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        follow(broker)
        pending = broker.begin(
            produce_request(batch_of([value_of(each) for each in range(3)]), acks=ACKS_ALL), 9
        )
        assert isinstance(pending, PendingResponse)
        broker.settle()
        data = only(broker.ask(ask(0), VERSION, FetchResponse))
        assert (values(data), data.high_watermark) == ([value_of(each) for each in range(3)], 0)
        assert not pending.is_decided
        assert only(broker.ask(ask(3), VERSION, FetchResponse)).high_watermark == 3
        assert pending.is_decided


def test_a_follower_is_told_the_end_of_the_log(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        follow(broker)
        broker.produce(batch_of([value_of(each) for each in range(3)]))
        for replica_id, expected in ((OTHER, 3), (-1, 0)):
            request = offsets_request(OffsetSpec.LATEST, replica_id=replica_id)
            if replica_id < 0:
                broker.session.broker = None
            response = broker.ask(request, 9, ListOffsetsResponse)
            assert response.topics[0].partitions[0].offset == expected


def test_the_next_fetch_of_a_session_releases_the_one_that_waits(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        follow(broker)
        opened = broker.ask(ask(0, session=(0, OPENING)), VERSION, FetchResponse)
        session = opened.session_id
        assert session
        first = broker.begin(ask(0, session=(session, 1), max_wait_ms=1000), VERSION)
        assert broker.delayed_count == 1
        second = broker.begin(ask(0, session=(session, 2), max_wait_ms=1000), VERSION)
        assert broker.delayed_count == 1, "the second waits instead of the first"
        answer = broker.finish(first, VERSION, FetchResponse)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, session)
        broker.produce(batch_of([value_of(0)]))
        assert values(only(broker.finish(second, VERSION, FetchResponse))) == [value_of(0)]


def test_who_registered_anew_must_prove_it_anew(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        follow(broker)
        request = fetch_request(wanted(0), replica_id=OTHER, replica_epoch=OTHERS_EPOCH + 1)
        with pytest.raises(StaleBrokerEpochError):
            broker.begin(request, VERSION)
        broker.session.broker = BrokerIdentity(OTHER, OTHERS_EPOCH - 1)
        with pytest.raises(StaleBrokerEpochError):
            broker.begin(ask(0), VERSION)
