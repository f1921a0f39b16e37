"""A cluster: first contact, the view, leaders that move, and retries."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from distributedlog.client.addresses import Address
from distributedlog.client.errors import error_from
from distributedlog.client.metadata import Cluster
from distributedlog.client.view import TopicView
from distributedlog.model.errors import (
    BrokerAvoidedError,
    BrokerError,
    BrokerUnreachableError,
    ClientClosedError,
    ConnectionLostError,
    InvalidNameError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from distributedlog.protocol.schema import Message
from tests.ports import free_port
from tests.unit.client.stage import QUICK, WAIT_SECONDS, HangUp, Raw, ScriptedBroker, mock_cluster, run


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
    clock = HandClock()

    async def story() -> None:
        async with Cluster([broker.address], QUICK, clock=clock) as cluster:
            await cluster.topic("t")
            clock.now_ms += QUICK.metadata_age_ms_max
            await cluster.topic("t")
            assert broker.count(ApiKey.METADATA) == 1
            clock.now_ms += 1
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


class HandClock:
    def __init__(self) -> None:
        self.now_ms = 1000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_a_broker_that_refuses_is_not_tried_again_at_once() -> None:
    clock, absent = HandClock(), nobody()

    async def story() -> None:
        async with Cluster([absent], QUICK, clock=clock) as cluster:
            for pause_ms in (50, 100):
                with pytest.raises(BrokerUnreachableError) as tried:
                    await cluster.connection_to(absent)
                assert not isinstance(tried.value, BrokerAvoidedError)
                with pytest.raises(BrokerAvoidedError, match=r"refused.*tried again in"):
                    await cluster.connection_to(absent)
                clock.now_ms += pause_ms * 12 // 10
            await asyncio.to_thread(started.enter_context, listening.running(absent.port))
            await cluster.connection_to(absent)

    listening = ScriptedBroker()
    with ExitStack() as started:
        run(story())
        assert listening.count(ApiKey.API_VERSIONS) == 1


def test_whoever_waits_for_a_connection_that_fails_shares_the_failure() -> None:
    async def story() -> None:
        async with Cluster([nobody()], QUICK, clock=HandClock()) as cluster:
            found = await asyncio.gather(
                *(cluster.connection_to(Address("127.0.0.1", port)) for _ in range(5)), return_exceptions=True
            )
            assert sum(isinstance(each, BrokerAvoidedError) for each in found) == 4

    port = free_port()
    run(story())


def test_a_cluster_that_has_moved_is_found_by_the_bootstrap_list() -> None:
    """The brokers that were known are gone for good; the list, as a name would, leads to others."""
    old, new = ScriptedBroker(topics={"t": 3}), ScriptedBroker(topics={"t": 1})

    async def story() -> None:
        async with Cluster([front, new.address], QUICK) as cluster:
            await cluster.topic("t")
            assert cluster.view.brokers[1].address == old.address
            stop_old()
            topic = await cluster.retrying(lambda: renewed(cluster))
            assert (len(topic.partitions), cluster.rebootstraps) == (1, 1)
            assert [each.address for each in await cluster.brokers()] == [new.address]

    async def stays() -> None:
        options = replace(QUICK, rebootstraps=False, call_timeout_ms=300)
        async with Cluster([front, new.address], options) as cluster:
            await cluster.topic("t")
            stop_old()
            with pytest.raises(BrokerUnreachableError):
                await cluster.retrying(lambda: renewed(cluster))

    async def renewed(cluster: Cluster) -> TopicView:
        cluster.mark_stale()
        for connection in list(cluster._connections.values()):
            connection.close()
        return (await cluster.refresh({"t"})).topics["t"]

    for each in (story, stays):
        with ExitStack() as olds, new.running():
            olds.enter_context(old.running())
            front, stop_old = old.address, olds.close
            run(each())


def test_a_broker_that_knows_of_earlier_leaders_alone_is_not_believed_after_a_new_beginning() -> None:
    broker = ScriptedBroker(topics={"t": 1})
    epoch = 5

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        response = broker.metadata(request, version)
        for topic in response.topics:
            topic.topic_id = Uuid(bytes([1] * 16))
            for each in topic.partitions:
                each.leader_epoch = epoch
        return response

    async def story() -> None:
        nonlocal epoch
        async with Cluster([broker.address], QUICK) as cluster:
            assert (await cluster.partition(TopicPartition("t", 0))).leader_epoch == 5
            cluster._leave_all()
            epoch = 4
            with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
                await cluster.partition(TopicPartition("t", 0))
            epoch = 6
            assert (await cluster.partition(TopicPartition("t", 0))).leader_epoch == 6

    broker.answers[ApiKey.METADATA] = metadata
    with broker.running():
        run(story())


@pytest.mark.parametrize("how", ["a broker asks for it", "nothing new for too long"])
def test_what_is_known_is_given_up_though_its_brokers_are_connected(how: str) -> None:
    clock = HandClock()
    is_lost = False

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        if is_lost and how == "a broker asks for it":
            return MetadataResponse(brokers=[], topics=[], error_code=129)
        if is_lost:
            clock.now_ms += QUICK.rebootstrap_after_ms // 2
            return Raw(b"")  # type: ignore[return-value]
        return old.metadata(request, version)

    old = ScriptedBroker(topics={"t": 3}, answers={ApiKey.METADATA: metadata})
    new = ScriptedBroker(topics={"t": 1})

    async def story() -> None:
        nonlocal is_lost
        options = replace(QUICK, request_timeout_ms=50, call_timeout_ms=2**31 - 1)
        async with Cluster([old.address, new.address], options, clock=clock) as cluster:
            await cluster.topic("t")
            is_lost = True
            cluster._bootstrap = (new.address,)  # as a name that leads elsewhere by now
            cluster.mark_stale()
            assert len((await cluster.topic("t")).partitions) == 1
            assert (cluster.rebootstraps, list(cluster._connections)) == (1, [new.address])

    with old.running(), new.running():
        run(story())


def test_a_closed_client_connects_to_nobody() -> None:
    async def story() -> None:
        cluster = Cluster([broker.address], QUICK)
        await cluster.brokers()
        await cluster.close()
        with pytest.raises(ClientClosedError):
            await cluster.connection_to(broker.address)

    with (broker := ScriptedBroker()).running():
        run(story())


def test_a_client_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    greeted, may_answer = threading.Event(), threading.Event()
    broker = ScriptedBroker()

    def greet(request: Message, version: int) -> Message | Raw:
        greeted.set()
        may_answer.wait(WAIT_SECONDS)
        return broker.greet(request, version)

    async def story() -> None:
        cluster = Cluster([broker.address], QUICK)
        connecting = asyncio.create_task(cluster.connection_to(broker.address))
        await asyncio.to_thread(greeted.wait, WAIT_SECONDS)
        await cluster.close()
        may_answer.set()
        with pytest.raises(ClientClosedError):
            await connecting
        assert cluster._connections == {}

    broker.answers[ApiKey.API_VERSIONS] = greet
    with broker.running():
        run(story())


def test_a_broker_that_hangs_is_not_asked_what_another_one_knows() -> None:
    hanging, other = ScriptedBroker(topics={"t": 1}), ScriptedBroker(topics={"t": 1})

    async def story() -> None:
        async with Cluster([hanging.address, other.address], QUICK) as cluster:
            await cluster.refresh()
            hanging.answers[ApiKey.METADATA] = lambda *_: None
            await cluster.connection_to(other.address)
            stuck = asyncio.create_task(cluster.refresh())
            while hanging.count(ApiKey.METADATA) < 2:
                await asyncio.sleep(0)
            await cluster.refresh()
            assert not stuck.done()
            stuck.cancel()
            await asyncio.gather(stuck, return_exceptions=True)

    with hanging.running(), other.running():
        run(story())
