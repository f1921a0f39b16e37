"""RemoveRaftVoter (81): takes a voter out of the metadata quorum (KIP-853).  Version 0, flexible."""

from distributedlog.model.ids import Uuid
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.kinds import INT16, INT32, STRING, UUID, nullable
from distributedlog.protocol.schema import Message, field


class RemoveRaftVoterRequest(Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible_since=0):
    cluster_id: str | None = field(nullable(STRING))
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID)


class RemoveRaftVoterResponse(Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(nullable(STRING), default=None)
