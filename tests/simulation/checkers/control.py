"""Named invariants of the simulated control plane, one per file, and what they are told.

The truth is what Raft applied: `Step` is one committed entry of the metadata log, the image before it and the
image after it, made here from the entry's bytes and from nothing that a node says.  A checker raises
`InvariantError` the moment its invariant is broken, or at the end of the run (`finish`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, NoReturn, Protocol

from distributedlog.controller.deltas import ImageDelta
from distributedlog.controller.elections import Placed, partitions_of
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.records import Versioned
from distributedlog.controller.requests import Request, Response
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from tests.simulation.checkers import InvariantError


class Step(NamedTuple):
    """A committed entry."""

    offset: int
    term: int
    time_us: int
    """When the first node applied it."""
    records: list[Versioned]
    before: MetadataImage
    after: MetadataImage
    delta: ImageDelta

    def touched(self) -> Iterator[Placed]:
        """The partitions that are new or changed."""
        for topic in self.delta.topics_created:
            yield from partitions_of(topic)
        for topic, partition_id, _, new in self.delta.partitions:
            if new is not None:
                yield Placed(topic, partition_id, new)


@dataclass(slots=True)
class Administration:
    """One request of a client, from its start to what became of it."""

    kind: str
    names: tuple[str, ...]
    """Topics, or settings."""
    marks: tuple[str, ...]
    """Values that no other request writes: they tell whose a record is."""
    invoked_us: int
    completed_us: int | None = None
    outcome: str = "unknown"
    """The error's name, or "ok", or "refused"."""
    error: ErrorCode = ErrorCode.NONE
    topic_ids: tuple[Uuid, ...] = ()
    seen: MetadataImage | None = None
    """What a read was answered."""
    partitions: int = 0
    visible: MetadataImage = field(default_factory=MetadataImage)
    """The image of the broker that was asked, when it answered."""

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.names)} {' '.join(self.marks)}".rstrip()


class Served(NamedTuple):
    """A request that a controller answered, with a response or a refusal."""

    node_id: int
    term: int
    """The term in which it took itself for the controller when it was asked."""
    asked_us: int
    asked_ms: int
    """The time on the controller's own clock."""
    request: Request
    response: Response
    refusal: BaseException | None


class ControlView(Protocol):
    """What checkers may see of the cluster."""

    @property
    def now_us(self) -> int: ...

    @property
    def steps(self) -> list[Step]:
        """The committed entries, in their order."""
        ...

    def step_at(self, offset: int) -> Step | None: ...


class ControlChecker:
    """Hears everything and objects to nothing."""

    name: ClassVar[str]

    def __init__(self, view: ControlView) -> None:
        self.view = view

    def on_commit(self, step: Step) -> None:
        """An entry was applied for the first time."""

    def on_publish(self, node_id: int, image: MetadataImage) -> None:
        """A node shows this image from now on."""

    def on_active(self, node_id: int, term: int) -> None:
        """A node takes itself for the controller."""

    def on_served(self, served: Served) -> None:
        """A controller let an answer out."""

    def on_proposed(self, request: Request) -> None:
        """A leader of partitions sent a request for other in-sync replicas."""

    def on_answer(self, operation: Administration) -> None:
        """A client has its answer."""

    def finish(self, operations: list[Administration]) -> None:
        """The run is over."""

    def fail(self, message: str) -> NoReturn:
        raise InvariantError(self.name, message)
