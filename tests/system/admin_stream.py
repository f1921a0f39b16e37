"""A stream of create, delete and alter against a cluster whose controllers are being killed, and its judge.

Every operation is recorded as it was invoked and as it ended: ok, refused, or unknown (a timeout, a broken
connection, leadership lost).  Names are unique and a value is never set twice, so afterwards each topic and
each setting says which operations happened.

    created ok, never deleted     there, once, whole: every partition, and the setting it was created with
    deleted ok                    gone
    altered ok                    has that value, or one of an operation that came later or is unknown
    refused                       did not happen
"""

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import TypeVar

from distributedlog.client.connection import Connection, connect
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from distributedlog.protocol.schema import Message

SETTING = "retention.ms"
CREATED_WITH = 1_000_000
TIMEOUT_MS = 1_500
TOPICS_EACH_MAX = 200
"""The topics of one worker: a long run must not fill the cluster."""
TOPIC = 2
UNKNOWN_CODES = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
M = TypeVar("M", bound=Message)
Address = tuple[str, int]


class UnknownOutcomeError(Exception):
    """Nobody can say whether it happened."""


@dataclass
class History:
    """What is known of one topic."""

    partitions: int
    created: str = "invoked"
    deleted: str = "no"
    altered: list[tuple[int, str]] = field(default_factory=list)
    """Values in the order in which they were set, and how that ended."""


class AdminStream:
    """Several workers, each with its own topics, through whichever broker answers."""

    def __init__(self, addresses: list[Address], seed: int) -> None:
        self.addresses = addresses
        self.topics: dict[str, History] = {}
        self.acknowledged: list[float] = []
        """When, by the monotonic clock."""
        self._chance = random.Random(seed)
        self._number = itertools.count(1)
        self._stopping = False

    async def work(self, name: str) -> None:
        mine: list[str] = []
        while not self._stopping:
            try:
                connection = await connect(*self._chance.choice(self.addresses), timeout_ms=TIMEOUT_MS)
            except DlogError:
                await asyncio.sleep(0.02)  # a refused connection costs nothing: do not spin on it
                continue
            try:
                while not self._stopping:
                    await self._operate(connection, name, mine)
            except (DlogError, UnknownOutcomeError):
                pass
            finally:
                connection.close()
                await connection.wait_closed()

    def stop(self) -> None:
        self._stopping = True

    async def _operate(self, connection: Connection, worker: str, mine: list[str]) -> None:
        drawn = self._chance.random()
        if not mine or (drawn < 0.5 and len(mine) < TOPICS_EACH_MAX):
            await self._create(connection, f"{worker}-{next(self._number)}", mine)
        elif drawn < 0.75:
            await self._alter(connection, self._chance.choice(mine))
        else:
            await self._delete(connection, mine.pop(self._chance.randrange(len(mine))))

    async def _create(self, connection: Connection, name: str, mine: list[str]) -> None:
        history = self.topics[name] = History(self._chance.randrange(1, 5), "unknown")
        topic = CreatableTopic(
            name=name,
            num_partitions=history.partitions,
            replication_factor=self._chance.choice((1, 3)),
            assignments=[],
            configs=[CreatableTopicConfig(name=SETTING, value=str(CREATED_WITH))],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await self._call(connection, request, CreateTopicsResponse)
        (result,) = answer.topics
        history.created = self._handle_partition_response(result.error_code)
        if history.created == "ok":
            mine.append(name)

    async def _delete(self, connection: Connection, name: str) -> None:
        history = self.topics[name]
        history.deleted = "unknown"
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        answer = await self._call(connection, request, DeleteTopicsResponse, version=5)
        history.deleted = self._handle_partition_response(answer.responses[0].error_code)

    async def _alter(self, connection: Connection, name: str) -> None:
        value = CREATED_WITH + next(self._number)
        altered = self.topics[name].altered
        altered.append((value, "unknown"))
        entry = AlterableConfig(name=SETTING, config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._call(connection, request, IncrementalAlterConfigsResponse)
        altered[-1] = (value, self._handle_partition_response(answer.responses[0].error_code))

    async def _call(
        self, connection: Connection, request: Message, response: type[M], version: int | None = None
    ) -> M:
        return await connection.call(request, response, timeout_ms=2 * TIMEOUT_MS, version=version)

    def _handle_partition_response(self, code: int) -> str:
        if code == ErrorCode.NONE:
            self.acknowledged.append(time.monotonic())
            return "ok"
        if code in UNKNOWN_CODES:
            raise UnknownOutcomeError
        return "refused"


# --- the judge ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What one broker says of one topic."""

    topic_id: object
    partitions: tuple[int, ...]
    setting: int


async def _connected(address: Address) -> Connection:
    """A broker that is let in is about to accept clients."""
    for _ in range(600):
        try:
            return await connect(*address)
        except DlogError:
            await asyncio.sleep(0.05)
    return await connect(*address)


async def look(address: Address) -> dict[str, Seen]:
    connection = await _connected(address)
    try:
        metadata = await connection.call(
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            MetadataResponse,
            timeout_ms=30_000,
        )
        names = [topic.name for topic in metadata.topics if topic.name is not None]
        values: dict[str, int] = {}
        for start in range(0, len(names), 500):
            resources = [
                DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[SETTING])
                for name in names[start : start + 500]
            ]
            configs = await connection.call(
                DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, timeout_ms=30_000
            )
            for result in configs.results:
                values[result.resource_name] = int(result.configs[0].value or -1)
        return {
            topic.name: Seen(
                topic.topic_id,
                tuple(sorted(each.partition_index for each in topic.partitions)),
                values[topic.name],
            )
            for topic in metadata.topics
            if topic.name is not None
        }
    finally:
        connection.close()
        await connection.wait_closed()


def problems(topics: dict[str, History], seen: dict[str, Seen]) -> list[str]:
    """What contradicts what was promised."""
    found = [f"{name} was never asked for" for name in seen if name not in topics]
    ids = [each.topic_id for each in seen.values()]
    if len(set(ids)) != len(ids):
        found.append("two topics have one id")
    for name, history in topics.items():
        found += [f"{name}: {what}" for what in _problems_of(history, seen.get(name))]
    return found


def _problems_of(history: History, seen: Seen | None) -> list[str]:
    if seen is None:
        lost = history.created == "ok" and history.deleted in ("no", "refused")
        return ["its creation was acknowledged and it is not there"] if lost else []
    found = []
    if history.created == "refused":
        found.append("its creation was refused and it is there")
    if history.deleted == "ok":
        found.append("its deletion was acknowledged and it is there")
    if seen.partitions != tuple(range(history.partitions)):
        found.append(f"it has the partitions {seen.partitions} of {history.partitions}: half of a change")
    if seen.setting not in _possible_settings(history):
        found.append(f"its setting is {seen.setting}, of {_possible_settings(history)}")
    return found


def _possible_settings(history: History) -> list[int]:
    """The last acknowledged value, and those of which nobody knows that were asked for since."""
    possible = [CREATED_WITH]
    for value, outcome in history.altered:
        if outcome == "ok":
            possible = [value]
        elif outcome == "unknown":
            possible.append(value)
    return possible
