"""What a client may not do: bad bytes, too much, too slow.  Only its own connection feels it."""

import asyncio
import logging
import struct
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.admission import SHARE, UNANSWERED_MAX, ServerLimits
from distributedlog.broker.net.dispatch import CloseConnectionError, Handlers
from distributedlog.broker.net.request_queue import ELEMENTS_MAX
from distributedlog.broker.net.turns import SLICE_MS
from distributedlog.model.config import KIB, MIB
from distributedlog.model.error_codes import ErrorCode
from distributedlog.ports.clock import SystemClock
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from distributedlog.protocol.messages.list_offsets import ListOffsetsRequest
from distributedlog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from distributedlog.protocol.schema import Message
from tests.unit.broker.server_stage import (
    PATIENT,
    Client,
    HurriedClock,
    Later,
    Network,
    Stage,
    answer,
    asked,
    run,
)

LARGE = 300 * KIB


def size_of(number: int) -> bytes:
    return struct.pack(">i", number)


def large(correlation_id: int, size: int = LARGE) -> bytes:
    """A SyncGroup, which may carry bytes, of about this size."""
    request = SyncGroupRequest(
        group_id="g" * 30_000, generation_id=1, member_id="m", group_instance_id=None, assignments=[]
    )
    frame = join_parts(encode_request(request, 3, correlation_id, "tester"))
    padding = max(0, size - len(frame) + 4)
    # Bytes behind a body are let pass.
    return size_of(len(frame) - 4 + padding) + frame[4:] + bytes(padding)


def serving_large(later: Later) -> Handlers:
    handlers = Handlers()

    @handlers.handles(SyncGroupRequest, versions=(0, 3))
    def sync_group(services: object, request: SyncGroupRequest, context: object) -> Any:
        future = asyncio.get_running_loop().create_future()
        later.futures[str(len(later.futures))] = future
        return future

    return handlers


def synced(later: Later, number: int) -> None:
    later.futures[str(number)].set_result(SyncGroupResponse(assignment=b""))


async def correlation_id_of(client: Client) -> int:
    return decode_response(SyncGroupResponse, 3, await client.frame())[0]


# --- bad bytes ---------------------------------------------------------------------------------

UNSERVED_VERSION = join_parts(
    encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 1, "c")
)
BAD = {
    "a frame of two gigabytes": size_of(2**31 - 1),
    "a frame just above the limit": size_of(PATIENT.frame_bytes_max + 1),
    "a negative size": size_of(-1),
    "an empty frame": size_of(0),
    "a frame without a whole header": size_of(5) + bytes(5),
    "an unknown api": size_of(10) + struct.pack(">hhih", 9999, 0, 1, -1),
    "an api without a handler": UNSERVED_VERSION,
    "a version above": size_of(10) + struct.pack(">hhih", 12, 9, 1, -1) + b"",
    "a version below": size_of(10) + struct.pack(">hhih", 12, -1, 1, -1),
    "a body that is cut short": size_of(12) + struct.pack(">hhihh", 12, 3, 1, -1, 500),
    "a client id that is no text": size_of(12) + struct.pack(">hhih", 12, 3, 1, 2) + b"\xff\xff",
    "an http request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_bytes_end_their_connection_and_are_told_of_with_the_peer(
    bad: bytes, caplog: pytest.LogCaptureFixture, network: Network
) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            healthy, hostile = await stage.connect(), await stage.connect()
            await hostile.send(asked("before", 1) + bad)
            assert await hostile.answer() == (1, 0)
            assert await hostile.is_cut()
            await stage.counts.until_closed("bad request")
            again = await stage.connect()
            await again.send(bad)
            assert await again.is_cut()
            assert await healthy.ask(correlation_id=2) == (2, 0)

    with caplog.at_level(logging.WARNING, "distributedlog.broker"):
        network.run(story())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, "once for a peer, however often it comes again"
    assert told[0].startswith("127.0.0.1: bad request: ")


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_bytes_come_other_connections_are_served(chunks: list[bytes], framed: bool) -> None:
    async def story() -> None:
        async with Stage() as stage:
            healthy, hostile = await stage.connect(), await stage.connect()
            for chunk in chunks:
                try:
                    await hostile.send(size_of(len(chunk)) + chunk if framed else chunk)
                except ConnectionError:
                    break
            assert await healthy.ask(correlation_id=2) == (2, 0)

    run(story())


def test_a_version_beyond_is_answered_where_the_api_has_words_for_it(network: Network) -> None:
    async def story() -> None:
        handlers = Handlers()
        own = ApiVersion(api_key=18, min_version=0, max_version=4)
        handlers.handles(
            ApiVersionsRequest,
            versions=(0, 4),
            unknown=lambda: ApiVersionsResponse(error_code=35, api_keys=[own]),
        )(lambda services, request, context: ApiVersionsResponse(api_keys=[]))
        async with network.stage(PATIENT, handlers) as stage:
            later = Later()
            stage.reply = later
            client = await stage.connect()
            newer = size_of(12) + struct.pack(">hhih", 18, 99, 7, 0) + b"\x00\x01"
            await client.send(newer)
            expected = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
            assert decode_response(ApiVersionsResponse, 0, await client.frame()) == (7, expected)
            await client.send(asked("slow", 1) + newer)
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            later.come("slow")
            assert await client.answer() == (1, 0)
            assert decode_response(ApiVersionsResponse, 0, await client.frame()) == (7, expected)

    network.run(story())


# --- too much ----------------------------------------------------------------------------------


def test_a_connection_with_too_many_bytes_unanswered_is_not_read_from_until_they_are_answered(
    network: Network,
) -> None:
    async def story() -> None:
        limits = ServerLimits(in_flight_bytes_per_connection_max=100, tick_ms=5)
        async with network.stage(limits) as stage:
            stage.reply = later = Later()
            client, other = await stage.connect(), await stage.connect()
            await client.send(b"".join(asked(str(number), number) for number in range(10)))
            await stage.counts.until(lambda: len(stage.begun) == 4)
            await other.send(asked("other"))
            await stage.counts.until(lambda: "other" in stage.begun)
            assert stage.begun == ["0", "1", "2", "3", "other"]
            for number in range(10):
                await stage.counts.until(partial(stage.begun.__contains__, str(number)))
                later.come(str(number))
                assert await client.answer() == (number, 0)

    network.run(story())


def test_a_connection_with_too_many_requests_unanswered_is_not_read_from(network: Network) -> None:
    async def story() -> None:
        async with network.stage() as stage:
            stage.reply = later = Later()
            client = await stage.connect()
            await client.send(asked("x") * (UNANSWERED_MAX + 5))
            await stage.counts.until(lambda: stage.counts.delayed_now == UNANSWERED_MAX)
            probe = await stage.connect()
            await probe.send(asked("probe"))
            await stage.counts.until(lambda: "probe" in stage.begun)
            assert stage.begun.count("x") == UNANSWERED_MAX
            assert len(later.futures) == 2

    network.run(story())


async def filled(stage: Stage) -> tuple[Later, Client, Client]:
    """Four of the first client's ten requests are begun, and the broker is full; the second asked nothing."""
    stage.reply = later = Later()
    greedy, modest = await stage.connect(), await stage.connect()
    await greedy.send(b"".join(asked(str(number), number) for number in range(10)))
    await stage.counts.until(lambda: len(stage.begun) == 4)
    return later, greedy, modest


def test_a_full_broker_hears_the_first_request_of_every_connection_and_no_second(network: Network) -> None:
    async def story() -> None:
        async with network.stage(ServerLimits(in_flight_bytes_max=100, tick_ms=5)) as stage:
            later, greedy, modest = await filled(stage)
            await modest.send(asked("first", 1) + asked("second", 2))
            await stage.counts.until(lambda: "first" in stage.begun)
            assert stage.begun == ["0", "1", "2", "3", "first"]
            for number in range(10):
                await stage.counts.until(partial(later.futures.__contains__, str(number)))
                later.come(str(number))
                assert await greedy.answer() == (number, 0)
            await stage.counts.until(lambda: "second" in stage.begun)

    network.run(story())


def test_a_large_frame_that_is_answered_at_once_holds_no_room_any_more(network: Network) -> None:
    async def story() -> None:
        handlers = Handlers()
        handlers.handles(SyncGroupRequest, versions=(0, 3))(
            lambda services, request, context: SyncGroupResponse(assignment=b"")
        )
        async with network.stage(PATIENT, handlers) as stage:
            client = await stage.connect()
            await client.send(large(1))
            assert await correlation_id_of(client) == 1
            assert stage.server.in_flight_bytes == 0
            await client.send(large(2)[:-1] + b"\x00" + size_of(-1))
            assert await correlation_id_of(client) == 2

    network.run(story())


def test_who_had_to_wait_behind_a_full_broker_goes_on_once_its_own_request_is_answered(
    network: Network,
) -> None:
    async def story() -> None:
        async with network.stage(ServerLimits(in_flight_bytes_max=100, tick_ms=5)) as stage:
            later, _, modest = await filled(stage)
            for number in range(3):
                await modest.send(asked(f"modest {number}", number))
                await stage.counts.until(partial(later.futures.__contains__, f"modest {number}"))
                later.come(f"modest {number}")
                assert await modest.answer() == (number, 0)
            assert stage.begun.count("4") == 0, "the broker is as full as before"

    network.run(story())


def test_a_large_frame_waits_until_its_address_has_room_for_all_of_it(network: Network) -> None:
    async def story() -> None:
        later = Later()
        limits = ServerLimits(in_flight_bytes_max=2 * LARGE * SHARE, tick_ms=5)
        async with network.stage(limits, serving_large(later)) as stage:
            clients = [await stage.connect() for _ in range(4)]
            sending = [
                asyncio.create_task(client.send(large(number))) for number, client in enumerate(clients)
            ]
            await stage.counts.until(lambda: stage.counts.delayed_now == 2)
            small = await stage.connect()
            assert await small.ask(correlation_id=5) == (5, 0), "who has nothing unanswered is heard"
            assert stage.counts.delayed_now == 2
            assert stage.server.in_flight_bytes <= 2 * LARGE
            for number in range(4):
                await stage.counts.until(partial(later.futures.__contains__, str(number)))
                synced(later, number)
            assert sorted([await correlation_id_of(client) for client in clients]) == [0, 1, 2, 3]
            await asyncio.gather(*sending)

    network.run(story())


def test_pipelined_large_frames_do_not_wait_for_room_that_they_hold_themselves(network: Network) -> None:
    async def story() -> None:
        later = Later()
        limits = ServerLimits(in_flight_bytes_max=2 * LARGE, tick_ms=5)
        async with network.stage(limits, serving_large(later)) as stage:
            client = await stage.connect()
            sending = asyncio.create_task(client.send(b"".join(large(number) for number in range(5))))
            for number in range(5):
                await stage.counts.until(partial(later.futures.__contains__, str(number)))
                synced(later, number)
                assert await correlation_id_of(client) == number
            await sending

    network.run(story())


def test_a_client_that_goes_away_while_its_frame_waits_for_room_makes_way_for_the_next() -> None:
    async def story() -> None:
        later = Later()
        limits = ServerLimits(in_flight_bytes_max=LARGE, tick_ms=5)
        async with Stage(limits, serving_large(later)) as stage:
            holder, gone, patient = [await stage.connect() for _ in range(3)]
            await holder.send(large(0))
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            await gone.send(large(1)[: LARGE // 2])
            await patient.send(large(2)[: LARGE // 2])
            gone.close()
            holder.close()
            await stage.counts.until_closed("client gone")
            rest = asyncio.create_task(patient.send(large(2)[LARGE // 2 :]))
            await stage.counts.until(lambda: len(later.futures) == 2)
            synced(later, 1)
            assert await correlation_id_of(patient) == 2
            await rest

    run(story())


def test_a_claim_that_is_not_followed_by_bytes_is_cut_off_and_its_room_given_back(network: Network) -> None:
    async def story() -> None:
        limits = ServerLimits(setup_ms_max=100, tick_ms=5)
        async with network.stage(limits) as stage:
            client = await stage.connect()
            await client.send(asked() + size_of(50 * MIB) + bytes(100))
            await stage.counts.until_closed("slow request")
            assert await client.is_cut()
            assert stage.server.in_flight_bytes == 0

    network.run(story())


def test_a_large_frame_that_hardly_goes_on_is_cut_off_though_much_of_it_came(network: Network) -> None:
    async def story() -> None:
        async with network.stage(ServerLimits(setup_ms_max=100, tick_ms=5)) as stage:
            client = await stage.connect()
            await client.send(asked() + size_of(50 * MIB) + bytes(300 * KIB))
            await stage.counts.until_closed("slow request")
            assert stage.server.in_flight_bytes == 0

    network.run(story())


def test_time_in_which_we_do_not_read_is_not_held_against_the_client() -> None:
    async def story() -> None:
        later = Later()
        limits = ServerLimits(in_flight_bytes_max=LARGE, setup_ms_max=150, tick_ms=5)
        async with Stage(limits, serving_large(later)) as stage:
            holder, patient = await stage.connect(), await stage.connect()
            await holder.send(large(0))
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            await patient.send(large(1)[:20])
            for _ in range(2):
                # Each is cut off a whole time of grace after the frame was begun.
                assert await (await stage.connect()).is_cut()
            synced(later, 0)
            assert await correlation_id_of(holder) == 0
            await stage.counts.until(lambda: stage.server.in_flight_bytes > 0)
            for connection in list(stage.server._connections):
                connection.look(SystemClock().monotonic_ms())
            await patient.send(large(1)[20:])
            await stage.counts.until(lambda: len(later.futures) == 2)
            synced(later, 1)
            assert await correlation_id_of(patient) == 1

    run(story())


# --- too slow ----------------------------------------------------------------------------------


def cut_off(network: Network, reason: str, limits: ServerLimits, sent: bytes) -> Coroutine[Any, Any, None]:
    async def story() -> None:
        async with network.stage(limits) as stage:
            client = await stage.connect()
            await client.send(sent)
            assert await client.is_cut()
            assert stage.counts.closed == [("PLAINTEXT", reason)]

    return story()


def test_a_connection_without_a_request_is_cut_off(network: Network) -> None:
    network.run(cut_off(network, "no request", ServerLimits(setup_ms_max=30, tick_ms=5), b""))


def test_half_a_size_is_half_a_frame(network: Network) -> None:
    network.run(cut_off(network, "slow request", ServerLimits(setup_ms_max=30, tick_ms=5), size_of(20)[:2]))


def test_half_a_frame_is_cut_off_also_when_requests_came_before(network: Network) -> None:
    network.run(
        cut_off(network, "slow request", ServerLimits(setup_ms_max=30, tick_ms=5), asked() + asked()[:9])
    )


def test_an_idle_connection_is_closed(network: Network) -> None:
    network.run(cut_off(network, "idle", ServerLimits(idle_ms_max=30, tick_ms=5), asked()))


def test_a_connection_that_waits_for_an_answer_is_not_idle(network: Network) -> None:
    async def story() -> None:
        async with network.stage(ServerLimits(idle_ms_max=20, tick_ms=5)) as stage:
            stage.reply = later = Later()
            waiting, idle = await stage.connect(), await stage.connect()
            await waiting.send(asked("slow", 3))
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            stage.reply = lambda request, context: answer(0)
            await idle.ask()
            await stage.counts.until_closed("idle")
            assert len(stage.counts.closed) == 1
            later.come("slow")
            assert await waiting.answer() == (3, 0)

    network.run(story())


def test_a_request_past_its_deadline_is_answered_for_and_what_it_waited_for_is_cancelled(
    network: Network,
) -> None:
    async def story() -> None:
        async with network.stage(ServerLimits(request_ms_max=30, tick_ms=5)) as stage:
            stage.reply = later = Later()
            client = await stage.connect()
            assert await client.ask("slow", 4) == (4, ErrorCode.REQUEST_TIMED_OUT)
            assert later.futures["slow"].cancelled()
            stage.reply = lambda request, context: answer(0)
            assert await client.ask("quick", 5) == (5, 0)

    network.run(story())


def test_a_timeout_that_the_request_asks_for_comes_on_top(network: Network) -> None:
    async def story() -> None:
        handlers = Handlers()
        contexts = []

        @handlers.handles(LeaveGroupRequest, versions=(0, 3), timeout_ms=lambda request: 1_000_000)
        def leave_group(services: object, request: LeaveGroupRequest, context: Any) -> Any:
            contexts.append(context)
            return asyncio.get_running_loop().create_future()

        async with network.stage(
            ServerLimits(request_ms_max=20, idle_ms_max=20, tick_ms=5), handlers
        ) as stage:
            patient, idle = await stage.connect(), await stage.connect()
            request = LeaveGroupRequest(group_id="g", member_id="m", members=[])
            await patient.send(join_parts(encode_request(request, 2, 1, "c")))
            await idle.ask()
            await stage.counts.until_closed("idle")
            assert contexts[0].deadline_ms - contexts[0].received_ms == 1_000_020
            assert stage.counts.delayed_now == 1

    network.run(story())


def test_a_request_of_more_elements_than_a_cluster_has_partitions_is_not_handled(network: Network) -> None:
    """It would be handled in one go, and nobody else served meanwhile."""

    async def story() -> None:
        handlers = Handlers()

        @handlers.handles(LeaveGroupRequest, versions=(0, 3))
        def leave_group(services: object, request: LeaveGroupRequest, context: Any) -> Any:
            return LeaveGroupResponse(error_code=len(request.members) % 1000, members=[])

        async with network.stage(PATIENT, handlers) as stage:
            for count in (ELEMENTS_MAX, ELEMENTS_MAX + 1):
                client = await stage.connect()
                members = [MemberIdentity(member_id="m")] * count
                request = LeaveGroupRequest(group_id="g", member_id="", members=members)
                await client.send(join_parts(encode_request(request, 3, 1, "c")))
                if count == ELEMENTS_MAX:
                    assert await client.frame()
                else:
                    assert await client.is_cut()

    network.run(story())


def test_a_timeout_that_the_api_cannot_tell_ends_the_connection(network: Network) -> None:
    async def story() -> None:
        later = Later()
        handlers = Handlers()

        def hang_up(*_: object) -> Message:
            raise CloseConnectionError("it has no form for this")

        handlers.handles(ListOffsetsRequest, versions=(1, 5), error_response=hang_up)(
            lambda services, request, context: asyncio.get_running_loop().create_future()
        )
        async with network.stage(ServerLimits(request_ms_max=30, tick_ms=5), handlers) as stage:
            stage.reply = later
            client = await stage.connect()
            request = ListOffsetsRequest(replica_id=-1, topics=[])
            await client.send(join_parts(encode_request(request, 1, 1, "c")))
            assert await client.is_cut()
            await stage.counts.until_closed("refused")

    network.run(story())


def test_a_client_that_never_reads_costs_bounded_memory_and_is_cut_off() -> None:
    async def story() -> None:
        limits = ServerLimits(response_bytes_per_connection_max=64 * KIB, stalled_ms_max=300, tick_ms=5)
        handlers = Handlers()
        answered: list[int] = []

        @handlers.handles(SyncGroupRequest, versions=(0, 3))
        def sync_group(services: object, request: SyncGroupRequest, context: object) -> SyncGroupResponse:
            answered.append(len(answered))
            return SyncGroupResponse(assignment=bytes(32 * KIB))

        async with Stage(limits, handlers) as stage:
            healthy = await stage.connect()
            client = await stage.connect(receive_bytes=4096)
            request = SyncGroupRequest(
                group_id="g", generation_id=1, member_id="m", group_instance_id=None, assignments=[]
            )
            frame = join_parts(encode_request(request, 3, 1, "c"))
            flood = asyncio.create_task(client.send(frame * 1_000_000))
            await stage.counts.until_closed("slow reader")
            queued_bytes = len(answered) * 32 * KIB - stage.counts.out_bytes
            assert queued_bytes <= 64 * KIB + 33 * KIB
            assert await healthy.ask(correlation_id=3) == (3, 0)
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)

    run(story())


def test_many_clients_that_never_read_cost_bounded_memory_in_all() -> None:
    async def story() -> None:
        answer_bytes, clients = 32 * KIB, 8
        limits = ServerLimits(response_bytes_max=256 * KIB, stalled_ms_max=300, tick_ms=5)
        handlers = Handlers()
        answered: list[int] = []

        @handlers.handles(SyncGroupRequest, versions=(0, 3))
        def sync_group(services: object, request: SyncGroupRequest, context: object) -> SyncGroupResponse:
            answered.append(len(answered))
            return SyncGroupResponse(assignment=bytes(answer_bytes))

        async with Stage(limits, handlers) as stage:
            request = SyncGroupRequest(
                group_id="g", generation_id=1, member_id="m", group_instance_id=None, assignments=[]
            )
            frame = join_parts(encode_request(request, 3, 1, "c"))
            idlers = [await stage.connect(receive_bytes=4096) for _ in range(clients)]
            for idler in idlers:
                await idler.send(frame * 1000)
            await stage.counts.until_closed("slow reader")
            queued_bytes = len(answered) * answer_bytes - stage.counts.out_bytes
            assert queued_bytes <= limits.response_bytes_max + clients * (answer_bytes + KIB)
            await stage.counts.until_closed("slow reader", times=clients)
            healthy = await stage.connect()
            for number in range(3):
                assert await healthy.ask(correlation_id=number) == (number, 0)

    run(story())


def test_a_flood_of_slow_requests_lets_others_have_their_turn() -> None:
    async def story() -> None:
        clock = HurriedClock()
        async with Stage(clock=clock) as stage:

            def slowly(request: HeartbeatRequest, context: object) -> HeartbeatResponse:
                clock.ahead_ms += SLICE_MS
                return answer(0)

            stage.reply = slowly
            flooding, other = await stage.connect(), await stage.connect()
            await flooding.send(b"".join(asked("flood", number) for number in range(100)))
            await other.send(asked("other"))
            await other.answer()
            assert stage.begun.count("flood") < 10
            assert [(await flooding.answer())[0] for _ in range(100)] == list(range(100))

    run(story())
