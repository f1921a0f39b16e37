"""Who a node is, and what it proves that with: the same for all that it opens and all that it answers."""

from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.control.contract import Identity
from distributedlog.control.unproven import NOBODY, UnprovenMembers
from distributedlog.model.cluster_secret import CONTROL_CLIENT, CONTROL_SERVER, Claim, ClusterSecrets

SESSION_METADATA: Final = "dlog-session-bin"
"""The metadata of a call that has the session's id."""
SIGNATURE_METADATA: Final = "dlog-signature-bin"
"""The metadata of a call that has its number in the session (eight bytes), and its signature."""
AUTHENTICATE: Final = "/dlog.v1.Authentication/Authenticate"
SUBMIT: Final = "/dlog.v1.Controller/Submit"
WATCH_METADATA: Final = "/dlog.v1.Controller/WatchMetadata"
EXCHANGE: Final = "/dlog.v1.Raft/Exchange"
NUMBER_BYTES: Final = 8


class Credentials(NamedTuple):
    identity: Identity
    roles: str
    """`broker`, `controller`, or both with a comma."""
    secrets: Callable[[], ClusterSecrets]
    """Those of now: a file of secrets may be changed while the node runs."""
    unproven: UnprovenMembers = NOBODY
    """The nodes that may be spoken with although they prove nothing."""


def client_claim(identity: Identity, roles: str, receiver_id: int) -> Claim:
    return Claim(CONTROL_CLIENT, identity.cluster_id, identity.node_id, roles, receiver_id)


def server_claim(identity: Identity, caller_id: int) -> Claim:
    return Claim(CONTROL_SERVER, identity.cluster_id, identity.node_id, "", caller_id)
