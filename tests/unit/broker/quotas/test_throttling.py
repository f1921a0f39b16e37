"""A client that used more than its quota: it is told, and nothing is read from it meanwhile."""

import asyncio

import pytest

from distributedlog.broker.handlers._metadata_cache import EncodedMetadata
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Handlers, load_handlers
from distributedlog.broker.net.error_responses import make_empty
from distributedlog.broker.net.request_queue import encode_throttled
from distributedlog.broker.quotas.client_quotas import BURST_MS, ClientQuotas
from distributedlog.broker.services import Services
from distributedlog.controller.image import QuotaEntity
from distributedlog.controller.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    USER,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.codec import encode, join_parts
from distributedlog.protocol.framing import decode_response, encode_request, encode_response
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.fetch import FetchRequest, FetchResponse
from distributedlog.protocol.messages.metadata import MetadataResponse
from distributedlog.protocol.messages.produce import ProduceRequest, ProduceResponse
from distributedlog.protocol.schema import Message
from tests.unit.broker.server_stage import PATIENT, Client, Stage, asked, run

EVERYBODY: QuotaEntity = ((USER, None),)
MUCH = b"x" * 50_000


def quota(key: str, limit: float, entity: QuotaEntity = EVERYBODY) -> ClientQuotas:
    found = ClientQuotas()
    found.follow({entity: {key: limit}})
    return found


def handlers() -> Handlers:
    """Answers of a few kinds, at once or, as the test says, later."""
    made = Handlers()

    def produce(services: Services, request: ProduceRequest, context: RequestContext) -> HandlerResponse:
        return None if request.acks == 0 else ProduceResponse(responses=[])

    async def fetch(services: Services, request: FetchRequest, context: RequestContext) -> Message:
        await asyncio.sleep(0)
        return FetchResponse(responses=[])

    def create(services: Services, request: CreateTopicsRequest, context: RequestContext) -> HandlerResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=each.name) for each in request.topics])

    def refuse(
        request: CreateTopicsRequest, context: RequestContext, code: ErrorCode, text: str
    ) -> CreateTopicsResponse:
        results = [CreatableTopicResult(name=each.name, error_code=code) for each in request.topics]
        return CreateTopicsResponse(topics=results)

    made.handles(ProduceRequest, versions=(3, 9))(produce)
    made.handles(FetchRequest, versions=(4, 12))(fetch)
    made.handles(CreateTopicsRequest, versions=(2, 7), error_response=refuse)(create)
    return made


def written(request: Message, version: int, client_id: str = "tester") -> bytes:
    return join_parts(encode_request(request, version, 5, client_id))


def produce_request(acks: int = 1) -> ProduceRequest:
    return ProduceRequest(acks=acks, timeout_ms=1, topic_data=[], transactional_id=MUCH.decode()[:30_000])


async def produced(client: Client, acks: int = 1, client_id: str = "tester") -> int:
    """What the answer says that the client is to wait."""
    await client.send(written(produce_request(acks), 9, client_id))
    return decode_response(ProduceResponse, 9, await client.frame())[1].throttle_time_ms


def test_who_used_too_much_is_told_and_muted_and_then_goes_on() -> None:
    async def story() -> None:
        size = len(written(produce_request(), 9)) - 4
        found = quota(PRODUCER_BYTE_RATE, size // (BURST_MS / 1000 + 0.2))
        async with Stage(PATIENT, handlers(), quotas=found) as stage:
            client, loop = await stage.connect(), asyncio.get_running_loop()
            began_s = loop.time()
            throttle_ms = await produced(client)
            assert 200 <= throttle_ms <= 210
            assert await client.ask() == (0, 0)
            assert loop.time() - began_s >= throttle_ms / 1000
            assert found.throttled[PRODUCER_BYTE_RATE].times == 1

    run(story())


def test_others_are_served_meanwhile_and_the_muted_one_is_not() -> None:
    async def story() -> None:
        found = quota(PRODUCER_BYTE_RATE, 1.0, ((CLIENT_ID, "greedy"),))
        async with Stage(PATIENT, handlers(), quotas=found) as stage:
            greedy, modest = await stage.connect(), await stage.connect()
            assert await produced(greedy, client_id="greedy") > 1_000_000
            await greedy.send(asked("more"))
            for _ in range(20):
                assert await produced(modest, client_id="modest") == 0
                assert await modest.ask("mine") == (0, 0)
            assert stage.begun == ["mine"] * 20

    run(story())


def test_what_lies_in_one_packet_behind_the_request_that_was_too_much_waits_too() -> None:
    async def story() -> None:
        async with Stage(PATIENT, handlers(), quotas=quota(PRODUCER_BYTE_RATE, 1.0)) as stage:
            client = await stage.connect()
            await client.send(written(produce_request(), 9) + asked("behind"))
            await client.frame()
            other = await stage.connect()
            await other.ask("other")
            assert stage.begun == ["other"]

    run(story())


def test_requests_without_an_answer_mute_as_well() -> None:
    async def story() -> None:
        found = quota(PRODUCER_BYTE_RATE, 1.0)
        async with Stage(PATIENT, handlers(), quotas=found) as stage:
            client, other = await stage.connect(), await stage.connect()
            await client.send(written(produce_request(acks=0), 9) + asked("behind"))
            await stage.counts.until(lambda: ("Produce", 0) in stage.counts.answered)
            await other.ask("other")
            assert stage.begun == ["other"]

    run(story())


def test_answers_that_were_delayed_are_charged_when_they_leave() -> None:
    async def story() -> None:
        found = quota(CONSUMER_BYTE_RATE, 1.0)
        async with Stage(PATIENT, handlers(), quotas=found) as stage:
            client = await stage.connect()
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
            throttles = []
            for _ in range(2):
                await client.send(written(request, 12))
                throttles.append(decode_response(FetchResponse, 12, await client.frame())[1].throttle_time_ms)
                if throttles[-1]:
                    break
            assert throttles[-1] > 0
            assert found.throttled[CONSUMER_BYTE_RATE].times == 1

    run(story())


def test_a_muted_client_that_hangs_up_is_let_go() -> None:
    async def story() -> None:
        async with Stage(PATIENT, handlers(), quotas=quota(PRODUCER_BYTE_RATE, 1.0)) as stage:
            client = await stage.connect()
            assert await produced(client) > 1_000_000
            client.close()
            await stage.counts.until_closed("client gone")

    run(story())


def test_too_many_partitions_are_refused_with_how_long_to_wait() -> None:
    async def story() -> None:
        async with Stage(PATIENT, handlers(), quotas=quota(CONTROLLER_MUTATION_RATE, 10.0)) as stage:
            client = await stage.connect()

            async def create(count: int, version: int) -> tuple[int, int]:
                topic = CreatableTopic(
                    name="t", num_partitions=count, replication_factor=1, assignments=[], configs=[]
                )
                request = CreateTopicsRequest(topics=[topic], timeout_ms=1, validate_only=False)
                await client.send(written(request, version))
                answer = decode_response(CreateTopicsResponse, version, await client.frame())[1]
                return answer.topics[0].error_code, answer.throttle_time_ms

            assert await create(1, 7) == (ErrorCode.NONE, 0)
            code, throttle_ms = await create(1_000, 5)
            assert code == ErrorCode.NONE
            assert throttle_ms > 0
            client.close()
            client = await stage.connect()
            code, throttle_ms = await create(1, 7)
            assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert throttle_ms > 0

    run(story())


def answers_of_all_apis() -> list[tuple[type[Message], int]]:
    """Every response that has a field for the time to wait, in every version that is served and has it."""
    found = []
    for registration in load_handlers().by_key.values():
        field = next((each for each in registration.response.fields if each.name == "throttle_time_ms"), None)
        low, high = registration.versions
        found += [
            (registration.response, version)
            for version in range(low, high + 1)
            if field is not None and field.is_in(version)
        ]
    return found


@pytest.mark.parametrize(("response", "version"), answers_of_all_apis())
def test_every_answer_that_can_says_how_long_to_wait(response: type[Message], version: int) -> None:
    required = {each.name: make_empty(each.kind, version) for each in response.fields if each.is_required}
    answer = response(**required)
    parts = encode_throttled(answer, version, 7, 1_234)
    told = decode_response(response, version, bytearray(join_parts(parts)[4:]))[1]
    assert getattr(told, "throttle_time_ms") == 1_234  # noqa: B009 - not every response has it
    assert answer == response(**required), "it may be shared with others, who need not wait"


@pytest.mark.parametrize("version", range(14))
def test_metadata_that_is_kept_encoded_says_so_too(version: int) -> None:
    plain = MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[])
    kept = EncodedMetadata(parts=encode(plain, version))
    told = join_parts(encode_throttled(kept, version, 7, 1_234))
    answer = decode_response(MetadataResponse, version, bytearray(told[4:]))[1]
    assert answer.throttle_time_ms == (1_234 if version >= 3 else 0)
    again = join_parts(encode_response(kept, version, 7))
    assert again == join_parts(encode_response(plain, version, 7))
