"""What one connection may take of the others: time on the loop, and memory after its end."""

import asyncio
import gc
import itertools
import statistics

import pytest

from distributedlog.broker.net.admission import ServerLimits
from distributedlog.broker.net.connection import Connection
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Handlers
from distributedlog.broker.net.outgoing import TURN_BYTES, TURN_BYTES_MIN, Outgoing, Sent
from distributedlog.model.config import KIB, MIB
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import encode_request
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from distributedlog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.broker.server_stage import PATIENT, HurriedClock, Stage, answer, asked, run


def test_a_flood_from_many_holds_up_a_single_request_no_longer_than_a_flood_from_one() -> None:
    """Each request takes a millisecond.  Were each flood given a slice of its own, all slices would pass
    before the next turn of the one who asks one thing at a time."""
    floods = 20

    async def story() -> None:
        clock = HurriedClock()

        def slow(request: HeartbeatRequest, context: RequestContext) -> HandlerResponse:
            clock.ahead_ms += 1
            return answer(0)

        async with Stage(PATIENT, clock=clock) as stage:
            stage.reply = slow
            healthy = await stage.connect()
            assert await healthy.ask("healthy") == (0, 0)
            for _ in range(floods):
                await (await stage.connect()).send(asked("flood") * 500)
            for _ in range(21):
                await healthy.ask("healthy")
            turns = [at for at, group in enumerate(stage.begun) if group == "healthy"]
            between = [after - before for before, after in itertools.pairwise(turns)]
            # Some three turns of the loop, which is the client's too; with slices of their own it were 150.
            assert statistics.median(between) <= 4 * (floods + 3), between

    run(story())


def sync_group_frame() -> bytes:
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", group_instance_id=None, assignments=[]
    )
    return join_parts(encode_request(request, 3, 1, "c"))


def large_answers() -> Handlers:
    handlers = Handlers()

    @handlers.handles(SyncGroupRequest, versions=(0, 3))
    def sync_group(services: object, request: SyncGroupRequest, context: object) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=bytes(32 * KIB))

    return handlers


def test_a_reader_that_took_much_and_then_stops_is_cut_off_as_soon_as_any_other() -> None:
    async def story() -> None:
        limits = ServerLimits(response_bytes_per_connection_max=64 * KIB, stalled_ms_max=300, tick_ms=5)
        async with Stage(limits, large_answers()) as stage:
            client = await stage.connect(receive_bytes=4096)
            flood = asyncio.create_task(client.send(sync_group_frame() * 100_000))
            loop = asyncio.get_running_loop()
            taken = 0
            while taken < 4 * MIB:
                taken += len(await loop.sock_recv(client.socket, 64 * KIB))
            await stage.counts.until_closed("slow reader")
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)

    run(story())


def test_the_more_have_much_to_send_the_less_each_sends_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    real_send = Outgoing.send

    def send(outgoing: Outgoing, turn_bytes: int = TURN_BYTES) -> Sent:
        given.append(turn_bytes)
        return real_send(outgoing, turn_bytes)

    async def story() -> None:
        handlers = Handlers()
        handlers.handles(SyncGroupRequest, versions=(0, 3))(
            lambda services, request, context: SyncGroupResponse(assignment=bytes(16 * MIB))
        )
        async with Stage(PATIENT, handlers) as stage:
            clients = [await stage.connect() for _ in range(4)]
            await clients[0].send(sync_group_frame())
            await clients[0].frame()
            assert len(given) > 2
            assert set(given) == {TURN_BYTES}, "one alone takes nothing from others"
            for client in clients:
                await client.send(sync_group_frame())
            await stage.counts.until(lambda: len(stage.counts.answered) == 5)
            assert {TURN_BYTES, TURN_BYTES // 2, TURN_BYTES // 4} <= set(given)
            for client in clients:
                client.close()
            await stage.counts.until(lambda: len(stage.counts.closed) == 4)
            assert stage.server._processor.sending == 0, "who has gone is counted no more"
            stage.server._processor.sending = 1_000
            assert stage.server._processor.turn_bytes(is_sending=False) == TURN_BYTES_MIN

    monkeypatch.setattr(Outgoing, "send", send)
    run(story())


def test_a_reader_that_stops_just_when_a_turn_of_sending_ends_is_cut_off_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its socket never becomes writable again, and nothing else says that it is full."""
    real_send = Outgoing.send

    def send(outgoing: Outgoing, turn_bytes: int = TURN_BYTES) -> Sent:
        sent = real_send(outgoing, turn_bytes)
        return Sent.TURN_OVER if sent is Sent.BLOCKED else sent

    async def story() -> None:
        limits = ServerLimits(response_bytes_per_connection_max=64 * KIB, stalled_ms_max=300, tick_ms=5)
        async with Stage(limits, large_answers()) as stage:
            client = await stage.connect(receive_bytes=4096)
            flood = asyncio.create_task(client.send(sync_group_frame() * 1_000))
            await stage.counts.until_closed("slow reader")
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)

    monkeypatch.setattr(Outgoing, "send", send)
    run(story())


def test_a_slow_reader_that_goes_on_reading_is_kept() -> None:
    async def story() -> None:
        limits = ServerLimits(response_bytes_per_connection_max=64 * KIB, stalled_ms_max=100, tick_ms=5)
        clock = HurriedClock()
        async with Stage(limits, large_answers(), clock=clock) as stage:
            client = await stage.connect(receive_bytes=4096)
            frames = 300
            sending = asyncio.create_task(client.send(sync_group_frame() * frames))
            loop = asyncio.get_running_loop()
            taken = 0
            while taken < frames * 32 * KIB:
                taken += len(await loop.sock_recv(client.socket, 64 * KIB))
                clock.ahead_ms += 20  # five of these are a span, in which far more is taken than must be
            await sending
            assert stage.counts.closed == []

    run(story())


def test_a_connection_that_ended_leaves_nothing_for_the_collector() -> None:
    async def story() -> None:
        async with Stage() as stage:
            gc.collect()
            gc.disable()
            try:
                begun = [await stage.connect() for _ in range(3)]
                for client in begun:
                    assert await client.ask() == (0, 0)
                    await client.send((4 * MIB).to_bytes(4, "big") + bytes(70 * KIB))
                await stage.counts.until(lambda: len(stage.begun) == 3)
                for client in begun:
                    client.close()
                await stage.counts.until_closed("client gone", times=3)
                await asyncio.sleep(0)
                left = [each for each in gc.get_objects() if isinstance(each, Connection)]
                assert left == []
            finally:
                gc.enable()

    run(story())
