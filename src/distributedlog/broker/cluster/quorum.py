"""What the leader of the metadata log tells of its followers: DescribeQuorum's answer.

    voters       the members that vote, this node among them: how far each has the log on its disk
    observers    members without a vote, and brokers that watch: how far each said that it has replayed

Offsets are those of the log: the entry of index i has the offset i - 1, so the end of the log is its last
index, and the high watermark the commit index.  Times within are monotonic; they are told by the wall clock,
as of now.  A follower that this leader has not heard yet has no times.
"""

from collections.abc import Iterable

from distributedlog.controller.brokers import Session
from distributedlog.controller.requests import QuorumReply, ReplicaProgress
from distributedlog.ports.clock import Clock
from distributedlog.raft.core import Core
from distributedlog.raft.progress import Progress

UNKNOWN = -1


def quorum_reply(core: Core, heard: Iterable[tuple[int, Session]], clock: Clock) -> QuorumReply:
    """Returns the reply of a core that leads.  `heard` are the brokers that the controller has heard."""
    now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()

    def to_wall_ms(monotonic_ms: int | None) -> int:
        is_known = monotonic_ms is not None and monotonic_ms != UNKNOWN
        return wall_ms - (now_ms - monotonic_ms) if is_known and monotonic_ms is not None else UNKNOWN

    def member(node_id: int) -> ReplicaProgress:
        if node_id == core.node_id:
            return ReplicaProgress(node_id, core.log.last_index, wall_ms, wall_ms)
        follower: Progress | None = core.progress.get(node_id)
        if follower is None or follower.incarnation is None:
            return ReplicaProgress(node_id, UNKNOWN)
        heard_ms, caught_up_ms = to_wall_ms(follower.heard_ms), to_wall_ms(follower.caught_up_ms)
        return ReplicaProgress(node_id, follower.match_index, heard_ms, caught_up_ms)

    def watcher(node_id: int, session: Session) -> ReplicaProgress:
        heard_ms, caught_up_ms = to_wall_ms(session.last_contact_ms), to_wall_ms(session.caught_up_ms)
        return ReplicaProgress(node_id, session.metadata_offset + 1, heard_ms, caught_up_ms)

    membership = core.membership
    members = {*membership.voters, *membership.observers}
    observers = [member(node_id) for node_id in sorted(membership.observers)]
    observers += (watcher(node_id, session) for node_id, session in heard if node_id not in members)
    return QuorumReply(
        core.node_id,
        core.term,
        core.commit_index,
        tuple(member(node_id) for node_id in sorted(membership.voters)),
        tuple(observers),
    )
