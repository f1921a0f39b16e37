"""What the handlers share: one plain container, filled by the composition root.

Everything in it belongs to the data loop, and is used from no other thread.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distributedlog.broker.coordination.coordinators import Coordinator
    from distributedlog.broker.coordination.producer_ids import ProducerIds
    from distributedlog.broker.coordination.transaction_coordinators import TransactionCoordinator
    from distributedlog.broker.peers.authentication import SecretHolder
    from distributedlog.broker.peers.transaction_verifier import Answered, Question
    from distributedlog.broker.quotas.replication_quotas import ReplicationQuotas
    from distributedlog.broker.replicas.delayed import Purgatory
    from distributedlog.broker.replicas.fetch_sessions import FetchSessionCache
    from distributedlog.broker.replicas.partitions import PartitionSet
    from distributedlog.broker.replicas.step_queue import StepQueue
    from distributedlog.controller.image import MetadataImage
    from distributedlog.controller.requests import Request, Response
    from distributedlog.groups.requests import Reply
    from distributedlog.groups.requests import Request as GroupRequest
    from distributedlog.ports.clock import Clock
    from distributedlog.ports.executor import Done
    from distributedlog.replication.partition import Partition
    from distributedlog.settings.node_settings import NodeSettings
    from distributedlog.statemachine import TransactionEnd
    from distributedlog.transactions.requests import Reply as TransactionReply
    from distributedlog.transactions.requests import Request as TransactionRequest


class Metadata(Protocol):
    @property
    def image(self) -> "MetadataImage":
        """The newest image this loop has been given.  Immutable: take it once for all of a response."""
        ...


class Controller(Protocol):
    async def ask(self, request: "Request", timeout_ms: int) -> "Response":
        """Returns the active controller's reply, once this broker's image has what it did."""
        ...


class Groups(Protocol):
    """The groups that this broker coordinates."""

    def submit(self, group_id: str, request: "GroupRequest", deadline_ms: int, done: "Done[Reply]") -> None:
        """Submits a request; `done` gets the reply once what it says is committed, or the error for the
        client."""
        ...

    def end_transaction(
        self, partition: "Partition", end: "TransactionEnd", deadline_ms: int, done: "Done[Reply]"
    ) -> None:
        """Ends a transaction in a partition of the offsets topic; `done` gets None once its marker is
        committed, or the error."""
        ...

    def all_active(self) -> "Iterator[Coordinator]":
        """Those that can be asked; the others are loading."""
        ...

    @property
    def is_loading(self) -> bool: ...

    def unreadable_counts(self) -> Mapping[int, int]:
        """How many records of each partition of the offsets topic could not be read, where any."""
        ...


class Transactions(Protocol):
    """The transactional ids that this broker coordinates."""

    def submit(
        self,
        transactional_id: str,
        request: "TransactionRequest",
        deadline_ms: int,
        done: "Done[TransactionReply]",
    ) -> None:
        """Submits a request; `done` gets the reply once what it says is committed, or the error for the
        client."""
        ...

    def all_active(self) -> "Iterator[TransactionCoordinator]":
        """Those that can be asked; the others are loading."""
        ...

    @property
    def is_loading(self) -> bool: ...


class TransactionVerifier(Protocol):
    """Asks transaction coordinators whether partitions take part in a transaction."""

    def ask(self, question: "Question", answered: "Answered") -> None:
        """Calls `answered` with an error code for each partition, not before this has returned."""
        ...


class TrafficMetrics(Protocol):
    """What handlers count."""

    def produced(self, topic: str, records: int, size_bytes: int) -> None: ...

    def fetched(self, topic: str, records: int, size_bytes: int) -> None: ...

    def peer_refused(self) -> None: ...


class Isolation(Protocol):
    """Whether others may lead what this broker leads (`cluster.isolation`)."""

    @property
    def is_isolated(self) -> bool: ...

    def look(self) -> None:
        """Brings it up to date: called before something is answered that only a leader can know."""
        ...

    def note_fetch(self, broker_id: int) -> None:
        """Notes a fetch by another broker."""
        ...


class Heard:
    """The isolation of a broker that never is."""

    is_isolated = False

    def look(self) -> None:
        """Nothing is to be seen."""

    def note_fetch(self, broker_id: int) -> None:
        """It makes no difference."""


@dataclass(slots=True, kw_only=True)
class Services:
    """What a handler may use."""

    settings: "NodeSettings"
    clock: "Clock"
    metadata: Metadata
    controller: Controller
    partitions: "PartitionSet"
    purgatory: "Purgatory"
    searches: "StepQueue"
    """Batches opened to find a time."""
    preparations: "StepQueue"
    """Batches prepared to be appended."""
    fetch_sessions: "FetchSessionCache"
    replication_quotas: "ReplicationQuotas"
    producer_ids: "ProducerIds"
    groups: Groups
    transactions: Transactions
    transaction_verifier: TransactionVerifier
    metrics: TrafficMetrics
    secret_holder: "SecretHolder"
    """What this broker proves to others with, and verifies by."""
    isolation: Isolation = field(default_factory=Heard)
