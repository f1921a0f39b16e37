"""A cluster: first contact, the view, leaders that move, and retries."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from distributedlog.client.addresses import Address
from distributedlog.client.errors import error_from
from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConnectionLostError,
    InvalidNameError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from distributedlog.protocol.schema import Message
from tests.unit.client.stage import QUICK, HangUp, ScriptedBroker, free_port, mock_cluster, run


def nobody() -> Address:
    return Address("127.0.0.1", free_port())


def test_the_bootstrap_list_is_tried_until_somebody_answers() -> None:
    async def story() -> None:
        async with Cluster([nobody(), broker.address], QUICK) as cluster:
            view = await cluster.refresh()
            assert list(view.topics) == ["t"]

    with (broker := ScriptedBroker(topics={"t": 1})).running():
        run(story())


def test_if_nobody_answers_at_first_that_is_told_at_once_with_every_address() -> None:
    absent = [nobody(), nobody()]
    tries = 0

    async def story() -> None:
        async with Cluster(absent, replace(QUICK, call_timeout_ms=2**31 - 1)) as cluster:

            async def attempt() -> None:
                nonlocal tries
                tries += 1
                await cluster.refresh()

            await cluster.retrying(attempt)

    with pytest.raises(BrokerUnreachableError) as caught:
        run(story())
    assert all(str(address) in str(caught.value) for address in absent)
    assert tries == 1


def test_once_it_was_reached_a_failure_is_tried_again() -> None:
    hangs_up = iter([False, True, True, False])

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        if next(hangs_up):
            raise HangUp
        return broker.metadata(request, version)

    broker = ScriptedBroker(topics={"t": 1}, answers={ApiKey.METADATA: metadata})

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            await cluster.refresh()
            assert await cluster.retrying(lambda: cluster.refresh({"t"})) is cluster.view

    with broker.running():
        run(story())
    assert broker.count(ApiKey.METADATA) == 4


def test_retries_end_with_their_time_and_with_the_last_failure() -> None:
    tries = 0

    async def story() -> None:
        async with Cluster([nobody()], replace(QUICK, call_timeout_ms=30)) as cluster:

            async def attempt() -> None:
                nonlocal tries
                tries += 1
                raise ConnectionLostError(f"try {tries}")

            with pytest.raises(ConnectionLostError) as caught:
                await cluster.retrying(attempt)
            assert str(caught.value) == f"try {tries}"

    run(story())
    assert tries > 2


def test_what_would_fail_again_is_not_tried_again() -> None:
    tries = 0

    async def story() -> None:
        async with Cluster([nobody()], QUICK) as cluster:

            async def attempt() -> None:
                nonlocal tries
                tries += 1
                raise error_from(29, "topic 't'")

            await cluster.retrying(attempt)

    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        run(story())
    assert tries == 1


def test_callers_that_find_the_view_stale_together_ask_once() -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            await cluster.topic("t")
            cluster.mark_stale()
            asked = broker.count(ApiKey.METADATA)
            await asyncio.gather(*(cluster.partition(TopicPartition("t", index)) for index in range(8)))
            assert broker.count(ApiKey.METADATA) == asked + 1

    with (broker := ScriptedBroker(topics={"t": 8})).running():
        run(story())


def test_callers_that_want_a_connection_together_share_it() -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            found = await asyncio.gather(*(cluster.connection_to(broker.address) for _ in range(5)))
            assert len(set(map(id, found))) == 1

    with (broker := ScriptedBroker()).running():
        run(story())
    assert broker.count(ApiKey.API_VERSIONS) == 1


def test_a_view_that_is_known_is_not_asked_for_again() -> None:
    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            for _ in range(5):
                await cluster.topic("t")
                await cluster.partition(TopicPartition("t", 0))
            await cluster.brokers()
            await cluster.controller()

    with (broker := ScriptedBroker(topics={"t": 1})).running():
        run(story())
    assert broker.count(ApiKey.METADATA) == 1


def test_an_old_view_is_renewed() -> None:
    now_ms = 1000

    class HandClock:
        def wall_ms(self) -> int:
            return now_ms

        def monotonic_ms(self) -> int:
            return now_ms

    async def story() -> None:
        nonlocal now_ms
        async with Cluster([broker.address], QUICK, clock=HandClock()) as cluster:
            await cluster.topic("t")
            now_ms += QUICK.metadata_age_ms_max
            await cluster.topic("t")
            assert broker.count(ApiKey.METADATA) == 1
            now_ms += 1
            await cluster.topic("t")
            assert broker.count(ApiKey.METADATA) == 2

    with (broker := ScriptedBroker(topics={"t": 1})).running():
        run(story())


def appearing(broker: ScriptedBroker, codes: list[int]) -> Callable[[MetadataRequest, int], Message]:
    """The topic is refused with these codes first."""

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        response = broker.metadata(request, version)
        if codes:
            response.topics[0].error_code = codes.pop(0)
            response.topics[0].partitions = []
        return response

    return metadata


def test_a_topic_that_is_being_made_is_waited_for() -> None:
    broker = ScriptedBroker(topics={"t": 2})
    broker.answers[ApiKey.METADATA] = appearing(broker, [3, 5, 5])

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            assert len((await cluster.topic("t", allow_creation=True)).partitions) == 2

    with broker.running():
        run(story())


def test_a_topic_that_nobody_may_make_is_unknown_at_once() -> None:
    broker = ScriptedBroker(topics={"t": 2})
    broker.answers[ApiKey.METADATA] = appearing(broker, [3, 3])

    async def story() -> None:
        async with Cluster([broker.address], QUICK) as cluster:
            with pytest.raises(UnknownTopicError, match="no topic 't'"):
                await cluster.topic("t")

    with broker.running():
        run(story())
    assert broker.count(ApiKey.METADATA) == 1


def test_a_name_that_no_topic_can_have_is_refused_before_it_is_asked_for() -> None:
    async def story() -> None:
        async with Cluster([nobody()], QUICK) as cluster:
            await cluster.topic("a/b")

    with pytest.raises(InvalidNameError):
        run(story())


def test_leaders_of_a_cluster_of_three_are_found_and_connected_to() -> None:
    async def story(first: str) -> None:
        async with Cluster([Address("127.0.0.1", int(first.rpartition(":")[2]))], QUICK) as cluster:
            topic = await cluster.topic("t", allow_creation=True)
            partitions = [TopicPartition("t", each.index) for each in topic.partitions]
            by_leader = await cluster.by_leader(partitions)
            assert sorted(each for led in by_leader.values() for each in led) == partitions
            assert by_leader.keys() <= cluster.view.brokers.keys()
            for broker in await cluster.brokers():
                assert (await cluster.connection(broker.node_id)).label == str(broker.address)
            assert len(cluster.view.brokers) == 3

    with mock_cluster(3) as bootstrap:
        run(story(bootstrap.split(",")[0]))
