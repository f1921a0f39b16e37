"""What the handlers share: one plain container, filled by the composition root.

Everything in it belongs to the data loop, and is used from no other thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distributedlog.broker.coordinators import Coordinator
    from distributedlog.broker.delayed import Delayed
    from distributedlog.broker.fetch_sessions import FetchSessionCache
    from distributedlog.broker.partitions import PartitionSet
    from distributedlog.broker.producer_ids import ProducerIds
    from distributedlog.broker.settings import NodeSettings
    from distributedlog.controller.image import MetadataImage
    from distributedlog.controller.requests import Request, Response
    from distributedlog.groups.requests import Reply
    from distributedlog.groups.requests import Request as GroupRequest
    from distributedlog.ports.clock import Clock
    from distributedlog.ports.executor import Done


class Metadata(Protocol):
    @property
    def image(self) -> "MetadataImage":
        """The newest image this loop has been given.  Immutable: take it once and answer from it."""
        ...


class Controller(Protocol):
    async def ask(self, request: "Request", timeout_ms: int) -> "Response":
        """The active controller's answer, once this broker's image has what it did; else a DlogError."""
        ...


class Groups(Protocol):
    """The groups that this broker coordinates."""

    def submit(self, group_id: str, request: "GroupRequest", deadline_ms: int, done: "Done[Reply]") -> None:
        """`done` gets the reply once what it says is committed, or the error to tell the client."""
        ...

    def all_active(self) -> "Iterator[Coordinator]":
        """Those that can be asked; the others are loading."""
        ...

    @property
    def is_loading(self) -> bool: ...


class TrafficMetrics(Protocol):
    """What handlers count."""

    def produced(self, topic: str, records: int, size_bytes: int) -> None: ...

    def fetched(self, topic: str, records: int, size_bytes: int) -> None: ...


@dataclass(slots=True, kw_only=True)
class Services:
    """What a handler may use."""

    settings: "NodeSettings"
    clock: "Clock"
    metadata: Metadata
    controller: Controller
    partitions: "PartitionSet"
    delayed: "Delayed"
    fetch_sessions: "FetchSessionCache"
    producer_ids: "ProducerIds"
    groups: Groups
    metrics: TrafficMetrics
