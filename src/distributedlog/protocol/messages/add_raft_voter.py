"""AddRaftVoter (80): makes a controller a voter of the metadata quorum (KIP-853).

Versions 0 and 1, both flexible.  1 adds whether the response waits for the commit.
"""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import BOOL, INT16, INT32, STRING, UINT16, UUID, array, nullable
from distributedlog.protocol.schema import Message, Struct, field


class Listener(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class AddRaftVoterRequest(Message, api_key=ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible_since=0):
    cluster_id: str | None = field(nullable(STRING))
    timeout_ms: int = field(INT32)
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID)
    listeners: list[Listener] = field(array(Listener))
    ack_when_committed: bool = field(BOOL, since=1, default=True)


class AddRaftVoterResponse(Message, api_key=ApiKey.ADD_RAFT_VOTER, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
