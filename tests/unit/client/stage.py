"""Brokers to test clients on.

`mock_cluster` is the one that librdkafka brings for tests: it speaks Kafka's protocol and keeps records, and
is nobody's code that is tested here.  `ScriptedBroker` answers what a test tells it to, or breaks as told: in
a thread of its own, so that clients with any kind of loop can be put in front of it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import confluent_kafka

from distributedlog.client.addresses import Address
from distributedlog.client.options import ClientOptions
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_request, decode_request_header, encode_response
from distributedlog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from distributedlog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from distributedlog.protocol.registry import APIS
from distributedlog.protocol.schema import Message, VersionRange

T = TypeVar("T")

WAIT_SECONDS = 20.0
NODE_ID = 1
NOWHERE = Address("127.0.0.1", 0)

QUICK = ClientOptions(
    connect_timeout_ms=5_000,
    request_timeout_ms=5_000,
    call_timeout_ms=10_000,
    retry_pause_ms=1,
    retry_pause_ms_max=5,
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs it on a loop of its own; a test that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(WAIT_SECONDS):
            return await work

    return asyncio.run(bounded())


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[str]:
    """The bootstrap address.  It lives as long as the producer it was started with."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": brokers, "log_level": 0})
    found = list(owner.list_topics(timeout=WAIT_SECONDS).brokers.values())
    yield ",".join(f"{each.host}:{each.port}" for each in found)
    assert owner.flush(WAIT_SECONDS) == 0
    del owner


class HangUp(Exception):  # noqa: N818 - a deed, not an error
    """Raised by an answer: the broker closes the connection instead."""


class Raw(bytes):
    """Returned by an answer: these bytes are sent as they are."""


Answer = Callable[[Any, int], Message | Raw | None]
"""Request and version to response; None: no answer at all."""


@dataclass
class ScriptedBroker:
    """`topics` are led by this broker; `answers` come before the answers it has by itself."""

    answers: dict[ApiKey, Answer] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    """Partitions by name."""
    versions: dict[ApiKey, VersionRange] = field(default_factory=dict)
    """What it says that it speaks besides ApiVersions and Metadata."""
    greeting_versions: VersionRange = (0, 4)
    asked: list[tuple[ApiKey, int]] = field(default_factory=list)
    address: Address = NOWHERE

    @property
    def bootstrap(self) -> str:
        return str(self.address)

    def count(self, key: ApiKey) -> int:
        return sum(each == key for each, _ in self.asked)

    def metadata(self, request: MetadataRequest, _version: int) -> MetadataResponse:
        wanted = list(self.topics) if request.topics is None else [each.name or "" for each in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host=self.address.host, port=self.address.port)],
            cluster_id="scripted",
            controller_id=NODE_ID,
            topics=[self._topic(name) for name in wanted],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        count = self.topics.get(name)
        if count is None:
            return MetadataResponseTopic(error_code=3, name=name, partitions=[])
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=NODE_ID,
                leader_epoch=0,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
            )
            for index in range(count)
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    def greet(self, _request: Message, version: int) -> Message | Raw:
        first, last = self.greeting_versions
        ranges = {ApiKey.API_VERSIONS: self.greeting_versions, ApiKey.METADATA: (0, 13), **self.versions}
        keys = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in ranges.items()]
        is_known = first <= version <= last
        return ApiVersionsResponse(error_code=0 if is_known else 35, api_keys=keys)

    def answer(self, frame: bytearray) -> bytes | None:
        header, _ = decode_request_header(frame)
        key = ApiKey(header.api_key)
        version = header.api_version
        self.asked.append((key, version))
        own: dict[ApiKey, Answer] = {ApiKey.API_VERSIONS: self.greet, ApiKey.METADATA: self.metadata}
        script = self.answers.get(key) or own.get(key)
        assert script is not None, f"nobody said how to answer {key.name}"
        is_known = key != ApiKey.API_VERSIONS or version <= APIS[key].versions[1]
        response = script(decode_request(frame)[1] if is_known else None, version)
        if response is None or isinstance(response, Raw):
            return response
        if (
            key == ApiKey.API_VERSIONS
            and not self.greeting_versions[0] <= version <= self.greeting_versions[1]
        ):
            version = 0
        return join_parts(encode_response(response, version, header.correlation_id))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, HangUp, asyncio.CancelledError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self.answer(bytearray(await reader.readexactly(size)))
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        writer.close()

    @contextmanager
    def running(self, port: int = 0) -> Iterator["ScriptedBroker"]:
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", port))
        self.address = Address(*server.sockets[0].getsockname()[:2])
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(_stop(server), loop).result(WAIT_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(WAIT_SECONDS)
            loop.close()


async def _stop(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)
