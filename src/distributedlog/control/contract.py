"""What the control plane asks of a broker and gives to it, in terms that know no gRPC.

Everything here is called on the control loop, never blocks, and answers by callback: the same logic runs
over the network and in the seeded simulation.  The rule that matters is what a failure *means*:

    the error                                   what became of the request
    UnreachableError, NotLeaderError            nothing was done, and nothing will be: ask elsewhere, or again
    LeadershipLostError, RequestTimedOutError   unknown: it may have happened, or may yet
    any other DlogError                         the controller refused: nothing was done

An implementation may say "nothing" only where that is certain; in doubt it says "unknown".
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from distributedlog.controller.requests import Request, Response
from distributedlog.ports.executor import Done


class Identity(NamedTuple):
    """Who a node is to the others."""

    cluster_id: str
    node_id: int


class ControllerReply(NamedTuple):
    response: Response
    offset: int
    """The metadata log was committed up to here when it was answered: whoever asked and wants to see what it
    did waits until its own image has come this far."""


class ControllerService(Protocol):
    """What a broker gives to the control server: the controller, if this node is it."""

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        """Calls `done` exactly once, at the latest a little after `timeout_ms`."""
        ...


class ControllerClient(Protocol):
    """What the channel pool gives to a broker: the controller on another node."""

    def call(self, node_id: int, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        """Calls `done` exactly once, not from within this call.  Never raises for an unreachable node."""
        ...


class MetadataSink(Protocol):
    """Takes committed metadata in rising order of offsets; nothing committed in between is left out.

    An offset may be missing where the log holds no metadata, as at an entry that changes Raft's members.
    """

    def handle_snapshot(self, data: bytes, offset: int) -> None:
        """The image after this offset; comes only when the entries asked for are no longer in the log."""
        ...

    def handle_entry(self, payload: bytes, offset: int) -> None: ...


class MetadataSource(Protocol):
    """Committed metadata from an offset on, for as long as it is wanted."""

    def watch(self, from_offset: int, sink: MetadataSink) -> Callable[[], None]:
        """Feeds `sink`, perhaps at once, until what is returned is called; then it is not called again."""
        ...
