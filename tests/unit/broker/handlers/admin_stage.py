"""A broker's handlers on a real controller, whose log is in memory, and a real replica of its metadata.

Requests and answers go through the codec of the version they are asked in, so every test is of the bytes too.
Handlers that need no log are given none.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, TypeVar, cast

from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.coordination.producer_ids import ProducerIds
from distributedlog.broker.net.context import ANONYMOUS, ConnectionSession, RequestContext
from distributedlog.broker.net.dispatch import HANDLERS, Registration
from distributedlog.broker.services import Heard, Services
from distributedlog.controller.image import Endpoint, MetadataImage
from distributedlog.controller.requests import (
    AllocateProducerIdsRequest,
    CreateTopicsRequest,
    DescribeQuorumRequest,
    NewTopic,
    ProducerIdBlock,
    QuorumReply,
    Request,
    Response,
)
from distributedlog.model.errors import DlogError
from distributedlog.protocol.codec import decode_all, encode_bytes, join_parts
from distributedlog.protocol.framing import encode_response
from distributedlog.protocol.registry import api_of
from distributedlog.protocol.schema import Message
from distributedlog.settings.node_settings import NodeSettings
from tests.simulation.clock import ManualClock
from tests.unit.controller.stage import Stage, config

R = TypeVar("R", bound=Message)

LISTENER = "CLIENT"
TIMEOUT_MS = 30_000


class _Controller:
    """Answers when the committed log has reached the broker's replica."""

    def __init__(self, stage: Stage, replica: MetadataReplica) -> None:
        self.asked: list[tuple[Request, int]] = []
        self.failure: DlogError | None = None
        self.is_visible = True
        self.quorum: QuorumReply | None = None
        """What consensus says of itself, which is not the machine's to know."""
        self._stage = stage
        self._replica = replica

    async def ask(self, request: Request, timeout_ms: int) -> Response:
        self.asked.append((request, timeout_ms))
        if self.failure is not None:
            raise self.failure
        if isinstance(request, DescribeQuorumRequest) and self.quorum is not None:
            return self.quorum
        response = self._stage.ask(request, object)
        await asyncio.sleep(0)
        if self.is_visible:
            self.catch_up()
        return cast(Response, response)

    def catch_up(self) -> None:
        for offset, entry in enumerate(self._stage.log.entries):
            self._replica.handle_entry(entry, offset)
        self._replica.publish()


class NoLogs:
    """The partitions of a broker that has none."""

    def when_done(self, callback: Callable[[], None]) -> None:
        callback()


class Broker:
    """Broker 1 of as many as are asked for."""

    def __init__(self, *broker_ids: int, settings: NodeSettings | None = None, **controller: object) -> None:
        self.stage = Stage(config(**controller))
        self.replica = MetadataReplica()
        self.controller = _Controller(self.stage, self.replica)
        self.clock = ManualClock()
        self.session = ConnectionSession()
        for broker_id in broker_ids or (1,):
            self.stage.start(broker_id)
        present = {
            "settings": settings or NodeSettings(),
            "clock": self.clock,
            "metadata": self.replica,
            "controller": self.controller,
            "producer_ids": ProducerIds(self._fetch_block),
            "partitions": NoLogs(),
            "isolation": Heard(),
        }
        absent = dict.fromkeys(each.name for each in fields(Services))
        self.services = Services(**cast(Any, {**absent, **present}))
        self.controller.catch_up()

    async def _fetch_block(self) -> ProducerIdBlock:
        asked = AllocateProducerIdsRequest(1, self.stage.epochs[1])
        return cast(ProducerIdBlock, await self.controller.ask(asked, 1_000))

    @property
    def image(self) -> MetadataImage:
        return self.replica.image

    def create(self, name: str, *assignments: tuple[int, ...], **settings: str) -> None:
        self.stage.create(name, *(assignments or ((1,),)), **settings)
        self.controller.catch_up()

    def create_many(self, count: int, partitions: int) -> None:
        topics = tuple(NewTopic(name=f"topic-{n:05}", num_partitions=partitions) for n in range(count))
        self.stage.ask(CreateTopicsRequest(topics), object)
        self.controller.catch_up()

    def join(self, broker_id: int, **changes: object) -> None:
        self.stage.start(broker_id, **changes)
        self.controller.catch_up()

    def silence(self, *broker_ids: int) -> None:
        self.stage.silence(*broker_ids)
        self.controller.catch_up()

    # --- asking --------------------------------------------------------------------------------

    def ask(self, request: Message, version: int, answer: type[R], *, listener: str = LISTENER) -> R:
        """Handles a request as the server does: what the client wrote, and what it reads."""
        registration = registration_of(request)
        received = decode_all(type(request), version, encode_bytes(request, version))
        deadline_ms = self.clock.monotonic_ms() + TIMEOUT_MS
        context = RequestContext(
            ANONYMOUS, listener, "client", "127.0.0.1", 7, version, 0, deadline_ms, self.session
        )
        response = asyncio.run(self._handle(registration, received, context))
        encode_response(response, version, 5)
        sent = join_parts(encode_response(response, version, 5))
        return decode_all(answer, version, sent[9 if _has_tags(request, version) else 8 :])

    async def _handle(self, registration: Registration, request: Message, context: RequestContext) -> Message:
        try:
            handled = registration.handle(self.services, request, context)
            response = await handled if isinstance(handled, Awaitable) else handled
        except DlogError as error:
            response = registration.make_error_response(request, context, error.code, str(error))
        assert isinstance(response, Message)
        return response


def _has_tags(request: Message, version: int) -> bool:
    return version >= request.flexible_since


def registration_of(request: Message | type[Message]) -> Registration:
    """Returns the handler in the module that is named like that of the messages."""
    messages = api_of(request.api_key).request.__module__.rpartition(".")[2]
    importlib.import_module(f"distributedlog.broker.handlers.{messages}")
    return HANDLERS.by_key[request.api_key]


def versions_of(request: type[Message]) -> range:
    low, high = registration_of(request).versions
    return range(low, high + 1)


def elsewhere(broker_id: int) -> tuple[Endpoint, ...]:
    """A broker that has no address on the clients' listener."""
    return (Endpoint("OTHER", f"host-{broker_id}", 9092),)
