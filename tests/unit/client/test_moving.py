"""A client that goes where it is sent: to a leader that a broker names, to a replica that is nearer."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from distributedlog.client.addresses import Address
from distributedlog.client.consumer import Consumer
from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING
from distributedlog.client.producer import Producer, ProducerOptions
from distributedlog.client.view import BrokerView, ClusterView, PartitionView, TopicView
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages import fetch, produce
from distributedlog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from distributedlog.records.record import Record, encode_batch
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import QUICK, ScriptedBroker, run

HERE = TopicPartition("t", 0)
OTHER = 2
NOT_LEADER, OUT_OF_RANGE = 6, 1


@contextmanager
def two_brokers(ledger: Ledger) -> Iterator[tuple[ScriptedBroker, ScriptedBroker]]:
    """The first is the leader for all that the metadata says; the second has the records."""
    first, second = Ledger({"t": 1}).broker(), ledger.broker()
    for each in (first, second):
        each.versions |= {ApiKey.PRODUCE: (3, 12), ApiKey.FETCH: (4, 16)}
        each.versions.pop(ApiKey.INIT_PRODUCER_ID)

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        response = first.metadata(request, version)
        host, port = second.address
        response.brokers.append(MetadataResponseBroker(node_id=OTHER, host=host, port=port))
        return response

    first.answers[ApiKey.METADATA] = metadata
    with first.running(), second.running():
        yield first, second


def test_a_leader_that_a_broker_names_is_asked_at_once() -> None:
    ledger = Ledger({"t": 1})

    def moved(_request: object, _version: int) -> produce.ProduceResponse:
        part = produce.PartitionProduceResponse(
            index=0,
            error_code=NOT_LEADER,
            base_offset=-1,
            current_leader=produce.LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=5),
        )
        host, port = second.address
        return produce.ProduceResponse(
            responses=[produce.TopicProduceResponse(name="t", partition_responses=[part])],
            node_endpoints=[produce.NodeEndpoint(node_id=OTHER, host=host, port=port)],
        )

    def fetch_moved(_request: object, _version: int) -> fetch.FetchResponse:
        part = fetch.PartitionData(
            partition_index=0,
            error_code=NOT_LEADER,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
            current_leader=fetch.LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=5),
        )
        host, port = second.address
        return fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic="t", partitions=[part])],
            node_endpoints=[fetch.NodeEndpoint(node_id=OTHER, host=host, port=port)],
        )

    async def write() -> None:
        options = ProducerOptions(linger_ms=0)
        async with Cluster([first.address], QUICK) as there, Producer(there, options) as producer:
            for number in range(3):
                await (await producer.send("t", Record(b"%d" % number), 0)).wait()

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with Cluster([first.address], QUICK) as there, Consumer(there) as consumer:
            await consumer.assign({HERE: BEGINNING})
            while len(found) < 3:
                found += [each.value for got in await consumer.poll(5000) for each in got.records]
        return found

    with two_brokers(ledger) as (first, second):
        first.answers |= {ApiKey.PRODUCE: moved, ApiKey.FETCH: fetch_moved}
        run(write())
        asked = first.count(ApiKey.METADATA)
        assert (asked, first.count(ApiKey.PRODUCE)) == (1, 1)
        assert run(read()) == [b"0", b"1", b"2"]
        assert (first.count(ApiKey.METADATA) - asked, first.count(ApiKey.FETCH)) == (1, 1)
        assert second.count(ApiKey.METADATA) == 0


@pytest.mark.parametrize("is_willing", [True, False], ids=["it serves", "it refuses"])
def test_a_replica_in_the_own_rack_is_read_from_and_the_leader_if_it_refuses(is_willing: bool) -> None:
    near = Ledger({"t": 1})
    near.append(HERE, encode_batch([Record(b"near")]))
    racks: list[str] = []

    def served(value: bytes | None, code: int = 0, replica: int = -1) -> fetch.FetchResponse:
        data = b"" if value is None else bytes(encode_batch([Record(value)]))
        part = fetch.PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=1,
            aborted_transactions=None,
            records=data,
            preferred_read_replica=replica,
        )
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="t", partitions=[part])])

    def of_the_leader(request: fetch.FetchRequest, _version: int) -> fetch.FetchResponse:
        racks.append(request.rack_id)
        if len(racks) == 1:
            return served(None, replica=OTHER)
        return served(b"far")

    async def story() -> bytes | None:
        options = FetchOptions(rack="A")
        async with Cluster([first.address], QUICK) as there, Consumer(there, options) as consumer:
            await consumer.assign({HERE: BEGINNING})
            while not (got := await consumer.poll(5000)):
                pass
            return got[0].records[0].value

    with two_brokers(near) as (first, second):
        first.answers[ApiKey.FETCH] = of_the_leader
        if not is_willing:
            second.answers[ApiKey.FETCH] = lambda *_: served(None, OUT_OF_RANGE)
        assert run(story()) == (b"near" if is_willing else b"far")
    assert set(racks) == {"A"}


def test_where_a_nearer_replica_is_that_nobody_has_named_before_is_asked_for() -> None:
    """The leader sends everyone of the rack there, and itself serves nothing."""
    near = Ledger({"t": 1})
    near.append(HERE, encode_batch([Record(b"near")]))

    def of_the_leader(_request: object, _version: int) -> fetch.FetchResponse:
        part = fetch.PartitionData(
            partition_index=0,
            high_watermark=1,
            aborted_transactions=None,
            records=b"",
            preferred_read_replica=OTHER,
        )
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="t", partitions=[part])])

    async def story() -> bytes | None:
        options = FetchOptions(rack="A")
        async with Cluster([first.address], QUICK) as there, Consumer(there, options) as consumer:
            first.answers.pop(ApiKey.METADATA)  # which does not know the second
            await consumer.assign({HERE: BEGINNING})
            first.answers[ApiKey.METADATA] = of_both
            while not (got := await consumer.poll(5000)):
                pass
            return got[0].records[0].value

    with two_brokers(near) as (first, second):
        of_both = first.answers[ApiKey.METADATA]
        first.answers[ApiKey.FETCH] = of_the_leader
        assert run(story()) == b"near"
    assert first.count(ApiKey.FETCH) == 1
    assert second.count(ApiKey.FETCH) > 0


def test_only_news_of_a_leader_whose_place_is_known_move_the_view() -> None:
    view = ClusterView(
        brokers={1: BrokerView(1, Address("a", 1))},
        topics={"t": TopicView("t", (PartitionView(0, 1, 4),))},
    )
    named = produce.NodeEndpoint(node_id=OTHER, host="b", port=2)

    def hint(epoch: int) -> produce.LeaderIdAndEpoch:
        return produce.LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=epoch)

    moved = view.moved(HERE, hint(5), [named])
    assert moved is not None
    assert (moved.leader_of(HERE), moved.brokers[OTHER].address) == (OTHER, Address("b", 2))
    assert view.moved(HERE, hint(4), [named]) is None
    assert view.moved(HERE, hint(5), []) is None
    assert view.moved(TopicPartition("t", 1), hint(5), [named]) is None
    assert view.moved(TopicPartition("u", 0), hint(5), [named]) is None
    assert view._replace(topics={}).leader_of(HERE) is None
