"""One connection: greeting, pipelining, timeouts, and peers that break the rules."""

import asyncio
import struct

import pytest

from distributedlog.client.connection import IN_FLIGHT_MAX, Connection, _race_delay_s, connect
from distributedlog.model.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    MalformedMessageError,
    OverloadedError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.framing import FRAME_BYTES_MAX
from distributedlog.protocol.messages.create_topics import CreateTopicsRequest
from distributedlog.protocol.messages.fetch import FetchRequest
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.ports import free_port
from tests.unit.client.stage import Answer, HangUp, Raw, ScriptedBroker, mock_cluster, run

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
HEARTBEATS = {ApiKey.HEARTBEAT: (0, 4)}


async def opened(
    broker: ScriptedBroker, timeout_ms: int = 5000, frame_bytes_max: int = FRAME_BYTES_MAX
) -> Connection:
    return await connect(*broker.address, timeout_ms=timeout_ms, frame_bytes_max=frame_bytes_max)


async def beat(connection: Connection, timeout_ms: int = 5000) -> HeartbeatResponse:
    return await connection.call(HEARTBEAT, HeartbeatResponse, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("spoken", "asked"),
    [((0, 4), [3]), ((0, 3), [3]), ((0, 2), [3, 2]), ((0, 0), [3, 0])],
)
def test_the_greeting_comes_down_to_what_the_broker_speaks(spoken: tuple[int, int], asked: list[int]) -> None:
    broker = ScriptedBroker(versions=HEARTBEATS, greeting_versions=spoken)

    async def story() -> None:
        connection = await opened(broker)
        assert connection.versions[ApiKey.HEARTBEAT] == (0, 4)
        connection.close()

    with broker.running():
        run(story())
    assert broker.asked == [(ApiKey.API_VERSIONS, version) for version in asked]


def test_a_greeting_that_is_denied_in_a_form_of_its_own_is_tried_in_the_oldest() -> None:
    async def story(host: str, port: str) -> None:
        connection = await connect(host, int(port), timeout_ms=5000)
        assert connection.versions[ApiKey.API_VERSIONS] == (0, 2)
        connection.close()

    with mock_cluster() as bootstrap:
        run(story(*bootstrap.split(":")))


def test_a_request_travels_in_the_highest_version_that_both_have() -> None:
    broker = ScriptedBroker(
        versions={ApiKey.FETCH: (4, 99), ApiKey.CREATE_TOPICS: (90, 99), ApiKey.HEARTBEAT: (0, 2)}
    )

    async def story() -> None:
        connection = await opened(broker)
        assert connection.version_for(FetchRequest) == FetchRequest.versions[1]
        assert connection.version_for(FetchRequest, 12) == 12
        assert connection.version_for(HeartbeatRequest) == 2
        with pytest.raises(UnsupportedVersionError, match="in versions 90 to 99"):
            connection.version_for(CreateTopicsRequest)
        connection.close()

    with broker.running():
        run(story())


def test_an_api_that_the_broker_does_not_serve_is_refused_before_it_is_asked() -> None:
    async def story() -> None:
        connection = await opened(broker)
        assert not connection.serves(HeartbeatRequest)
        with pytest.raises(UnsupportedVersionError, match="does not serve HEARTBEAT"):
            await beat(connection)
        assert connection.in_flight == 0
        connection.close()

    with (broker := ScriptedBroker()).running():
        run(story())
    assert broker.count(ApiKey.HEARTBEAT) == 0


def test_requests_are_pipelined_and_each_gets_its_own_answer() -> None:
    counted = iter(range(100))
    broker = ScriptedBroker(
        versions=HEARTBEATS,
        answers={
            ApiKey.HEARTBEAT: lambda request, _: HeartbeatResponse(throttle_time_ms=request.generation_id)
        },
    )

    async def story() -> None:
        connection = await opened(broker)
        futures = [
            connection.submit(
                HeartbeatRequest(group_id="g", generation_id=next(counted), member_id="m"),
                HeartbeatResponse,
                timeout_ms=5000,
            )
            for _ in range(100)
        ]
        assert connection.in_flight == 100
        answers = await asyncio.gather(*futures)
        assert [answer.throttle_time_ms for answer in answers] == list(range(100))
        connection.close()

    with broker.running():
        run(story())


def test_a_cancelled_request_keeps_its_place_and_its_answer_is_dropped() -> None:
    broker = ScriptedBroker(
        versions=HEARTBEATS,
        answers={
            ApiKey.HEARTBEAT: lambda request, _: HeartbeatResponse(throttle_time_ms=request.generation_id)
        },
    )

    async def story() -> None:
        connection = await opened(broker)
        first = connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=5000)
        first.cancel()
        answer = await connection.call(
            HeartbeatRequest(group_id="g", generation_id=7, member_id="m"), HeartbeatResponse, timeout_ms=5000
        )
        assert answer.throttle_time_ms == 7
        assert not connection.is_closed
        connection.close()

    with broker.running():
        run(story())


def test_a_request_without_answer_times_out_and_takes_the_connection_with_it() -> None:
    broker = ScriptedBroker(versions=HEARTBEATS, answers={ApiKey.HEARTBEAT: lambda *_: None})

    async def story() -> None:
        connection = await opened(broker)
        late = connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=20)
        behind = connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=5000)
        with pytest.raises(RequestTimedOutError, match="did not answer HEARTBEAT within 20 ms"):
            await late
        with pytest.raises(ConnectionLostError):
            await behind
        assert connection.is_closed
        with pytest.raises(ConnectionLostError):
            await beat(connection)

    with broker.running():
        run(story())


def test_a_broker_that_hangs_up_fails_what_is_open() -> None:
    def hang_up(*_: object) -> None:
        raise HangUp

    broker = ScriptedBroker(versions=HEARTBEATS, answers={ApiKey.HEARTBEAT: hang_up})

    async def story() -> None:
        connection = await opened(broker)
        futures = [connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=5000) for _ in range(3)]
        for future in futures:
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1"):
                await future
        await connection.wait_closed()

    with broker.running():
        run(story())


def test_closing_fails_what_is_open() -> None:
    broker = ScriptedBroker(versions=HEARTBEATS, answers={ApiKey.HEARTBEAT: lambda *_: None})

    async def story() -> None:
        connection = await opened(broker)
        future = connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=5000)
        connection.close()
        with pytest.raises(ConnectionLostError, match="was closed"):
            await future
        await connection.wait_closed()

    with broker.running():
        run(story())


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (struct.pack(">ii", 4, 999), "answered what was not asked"),
        (struct.pack(">i", 2**31 - 1), "a frame claims 2147483647 bytes"),
        (struct.pack(">i", -1), "a frame claims -1 bytes"),
        (struct.pack(">ih", 2, 0), "no whole header"),
        (struct.pack(">ii", 4, 1), "cut short"),
    ],
    ids=["another id", "huge", "negative", "no header", "no body"],
)
def test_nonsense_closes_the_connection(raw: bytes, says: str) -> None:
    broker = ScriptedBroker(versions=HEARTBEATS, answers={ApiKey.HEARTBEAT: lambda *_: Raw(raw)})

    async def story() -> None:
        connection = await opened(broker)
        with pytest.raises(MalformedMessageError, match=says):
            await beat(connection)
        assert connection.is_closed

    with broker.running():
        run(story())


def test_a_frame_over_the_limit_is_refused_before_it_comes() -> None:
    broker = ScriptedBroker(topics={f"topic-{number}": 3 for number in range(100)})

    async def story() -> None:
        connection = await opened(broker, frame_bytes_max=1000)
        with pytest.raises(MalformedMessageError, match="at most 1000 are allowed"):
            await connection.call(MetadataRequest(topics=None), MetadataResponse, timeout_ms=5000)

    with broker.running():
        run(story())


def test_more_requests_than_may_be_open_are_refused() -> None:
    broker = ScriptedBroker(versions=HEARTBEATS, answers={ApiKey.HEARTBEAT: lambda *_: None})

    async def story() -> None:
        connection = await opened(broker)
        futures = [
            connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=5000) for _ in range(IN_FLIGHT_MAX)
        ]
        with pytest.raises(OverloadedError):
            connection.submit(HEARTBEAT, HeartbeatResponse, timeout_ms=5000)
        connection.close()
        failures = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(failure, ConnectionLostError) for failure in failures)

    with broker.running():
        run(story())


def test_a_port_where_nobody_listens_is_unreachable_and_named() -> None:
    port = free_port()
    with pytest.raises(
        BrokerUnreachableError, match=rf"127\.0\.0\.1:{port} cannot be reached: Connection refused"
    ):
        run(connect("127.0.0.1", port))


def test_a_host_that_does_not_exist_is_unreachable() -> None:
    told = r"^no\.such\.host\.invalid:9092 cannot be reached: (?!\[)"
    with pytest.raises(BrokerUnreachableError, match=told):
        run(connect("no.such.host.invalid", 9092))


@pytest.mark.parametrize("name", ["broker..example", "b" * 64 + ".example"])
def test_a_name_that_no_host_can_have_is_unreachable(name: str) -> None:
    with pytest.raises(
        BrokerUnreachableError, match=rf"^{name}:9092 cannot be reached: no host can have such a"
    ):
        run(connect(name, 9092))


def refused_greeting(answer: Answer, timeout_ms: int = 5000) -> str:
    """What is said of a peer that greets like this."""
    broker = ScriptedBroker(answers={ApiKey.API_VERSIONS: answer})
    with broker.running(), pytest.raises(BrokerUnreachableError) as caught:
        run(opened(broker, timeout_ms))
    return str(caught.value)


def test_a_peer_that_says_nothing_is_given_up() -> None:
    assert "did not say what it speaks within 500 ms" in refused_greeting(lambda *_: None, 500)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\0"])
def test_what_is_no_kafka_broker_is_told_apart(said: bytes) -> None:
    assert "does not answer as a Kafka broker" in refused_greeting(lambda *_: Raw(said))


def test_a_peer_that_hangs_up_on_the_greeting_is_no_kafka_broker() -> None:
    def hang_up(*_: object) -> None:
        raise HangUp

    assert "does not answer as a Kafka broker" in refused_greeting(hang_up)


@pytest.mark.parametrize(("host", "races"), [("127.0.0.1", False), ("::1", False), ("localhost", True)])
def test_only_a_name_is_tried_at_several_addresses_at_once(host: str, races: bool) -> None:
    assert (_race_delay_s(host) is not None) is races
