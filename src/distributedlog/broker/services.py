"""What the handlers share: one plain container, filled by the composition root.

Everything in it belongs to the data loop, and is used from no other thread.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distributedlog.broker.coordinators import GroupCoordinators
    from distributedlog.broker.delayed import Delayed
    from distributedlog.broker.fetch_sessions import FetchSessionCache
    from distributedlog.broker.partitions import PartitionSet
    from distributedlog.broker.producer_ids import ProducerIds
    from distributedlog.broker.settings import NodeSettings
    from distributedlog.controller.image import MetadataImage
    from distributedlog.controller.requests import Request, Response
    from distributedlog.ports.clock import Clock


class Metadata(Protocol):
    @property
    def image(self) -> "MetadataImage":
        """The newest image this loop has been given.  Immutable: take it once and answer from it."""
        ...


class Controller(Protocol):
    async def ask(self, request: "Request", timeout_ms: int) -> "Response":
        """The active controller's answer, once this broker's image has what it did; else a DlogError."""
        ...


class TrafficMetrics(Protocol):
    """What handlers count."""

    def produced(self, topic: str, records: int, size_bytes: int) -> None: ...

    def fetched(self, topic: str, records: int, size_bytes: int) -> None: ...


@dataclass(slots=True, kw_only=True)
class Services:
    settings: "NodeSettings"
    clock: "Clock"
    metadata: Metadata
    controller: Controller
    partitions: "PartitionSet"
    delayed: "Delayed"
    fetch_sessions: "FetchSessionCache"
    producer_ids: "ProducerIds"
    groups: "GroupCoordinators"
    metrics: TrafficMetrics
