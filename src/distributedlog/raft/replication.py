"""Replication: a leader makes the followers' logs like its own, and counts.

A leader never changes its log but by appending.  An append names the entry before it; a follower that has
another entry there refuses and says where the logs may still agree, by term, so that a whole term of
conflict costs one exchange.  A follower that accepts drops what conflicts and answers when the entries
are on its disk.

The leader commits the largest index that a majority of voters has on disk, *if that entry is of its own
term*: an older entry on a majority can still be overruled (figure 8 of the Raft paper); it commits with
the first entry of the new term behind it, which is why a term opens with a no-op.

Lost messages: an answered heartbeat from a follower that got no further for two heartbeats sends again.
"""

from distributedlog.raft import codec
from distributedlog.raft.core import Core
from distributedlog.raft.membership import Membership
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    TimeoutNow,
)
from distributedlog.raft.progress import Mode, Progress
from distributedlog.raft.reads import confirm_reads, start_waiting_reads
from distributedlog.raft.roles import Role, RoleEvent
from distributedlog.raft.snapshots import begin_snapshot, resend_chunk

# --- the leader --------------------------------------------------------------------------------


def begin_leading(core: Core) -> None:
    """Opens the term with a no-op and tells everyone."""
    core.leader_id = core.node_id
    core.round = 0
    core.progress = {}
    core.term_start_index = core.log.last_index + 1
    uncommitted = core.log.range(max(core.commit_index, core.log.base_index) + 1, core.log.last_index)
    core.uncommitted_bytes = sum(len(entry.payload) for entry in uncommitted)
    track_members(core)
    append_entry(core, EntryKind.NOOP, b"")
    send_heartbeats(core)
    replicate(core)


def track_members(core: Core) -> None:
    """Follows whoever is a member now, or was before a change that has not committed."""
    members = set(core.membership.members)
    if core.memberships.index > core.commit_index and core.memberships.previous is not None:
        members |= set(core.memberships.previous.members)  # one who leaves is told that it left
    members.discard(core.node_id)
    for node_id in [node_id for node_id in core.progress if node_id not in members]:
        del core.progress[node_id]
    for node_id in sorted(members - core.progress.keys()):
        core.progress[node_id] = Progress(
            core.log.last_index + 1, core.config.inflight_appends_max, core.now_ms
        )


def append_entry(core: Core, kind: EntryKind, payload: bytes) -> Entry:
    entry = Entry(core.log.last_index + 1, core.term, kind, payload)
    core.log.append(entry)
    core.uncommitted_bytes += len(payload)
    return entry


def append_membership(core: Core, membership: Membership) -> Entry:
    """Appends a membership, which is in force from the moment it is appended."""
    entry = append_entry(core, EntryKind.MEMBERSHIP, codec.encode_membership(membership))
    core.memberships.append(entry.index, membership)
    track_members(core)
    return entry


def replicate(core: Core) -> None:
    for node_id, follower in core.progress.items():
        send_appends(core, node_id, follower)


def send_appends(core: Core, node_id: int, follower: Progress) -> None:
    """Sends as much as the follower's window allows; a probe goes out even if it carries nothing."""
    while follower.may_append and (follower.next_index <= core.log.last_index or follower.mode is Mode.PROBE):
        if not _send_append(core, node_id, follower):
            return


def _send_append(core: Core, node_id: int, follower: Progress) -> bool:
    log, config = core.log, core.config
    prev_index = follower.next_index - 1
    prev_term = log.term_at(prev_index)
    if prev_term is None:
        begin_snapshot(core, node_id, follower)
        return False
    entries = log.slice(follower.next_index, config.append_entries_max, config.append_bytes_max)
    core.send(
        AppendRequest(core.node_id, node_id, core.term, prev_index, prev_term, core.commit_index, entries)
    )
    last_index = prev_index + len(entries)
    follower.sent(last_index, core.now_ms)
    follower.commit_sent = max(follower.commit_sent, min(core.commit_index, last_index))
    return True


def send_heartbeats(core: Core) -> None:
    """Says to all that the leader is there; reads ride along on the new round."""
    core.heartbeat_deadline_ms = core.now_ms + core.config.heartbeat_ms
    core.round += 1
    for node_id, follower in core.progress.items():
        commit_index = min(core.commit_index, follower.match_index)
        core.send(Heartbeat(core.node_id, node_id, core.term, commit_index, core.round))


def on_append_reply(core: Core, reply: AppendReply) -> None:
    follower = hear_follower(core, reply.sender, reply.incarnation)
    if follower is None:
        return
    if reply.rejected:
        agreeing, _ = core.log.last_agreeing(reply.hint_index, reply.hint_term)
        if follower.rejected(reply.match_index, agreeing + 1):
            send_appends(core, reply.sender, follower)
        return
    if reply.match_index > core.log.last_index:
        return  # it speaks of a log that this leader never had
    if follower.accepted(reply.match_index, core.now_ms):
        advance_commit(core)
    _note_caught_up(core, follower)
    if core.role is Role.LEADER:
        hand_over_if_ready(core)
        _send_commit(core, reply.sender, follower)
        send_appends(core, reply.sender, follower)


def on_heartbeat_reply(core: Core, reply: HeartbeatReply) -> None:
    follower = hear_follower(core, reply.sender, reply.incarnation)
    if follower is None:
        return
    _note_caught_up(core, follower)
    if follower.acked_round < reply.round <= core.round:
        follower.acked_round = reply.round
        if confirm_reads(core):
            send_heartbeats(core)
    stalled = core.now_ms - follower.moved_ms >= 2 * core.config.heartbeat_ms
    if follower.mode is Mode.SNAPSHOT:
        if stalled:
            resend_chunk(core, reply.sender, follower)
    elif follower.match_index < core.log.last_index and stalled:
        follower.probe_from(follower.next_index if follower.mode is Mode.PROBE else follower.match_index + 1)
        send_appends(core, reply.sender, follower)


def hear_follower(core: Core, node_id: int, incarnation: int) -> Progress | None:
    """Notes that a member answered; None if it is not one, or this node no leader."""
    follower = core.progress.get(node_id)
    if follower is None or core.role is not Role.LEADER:
        return None
    follower.heard_ms = core.now_ms
    if follower.incarnation != incarnation:
        if follower.incarnation is not None:
            follower.forget(core.log.last_index + 1)
        follower.incarnation = incarnation
    return follower


def _note_caught_up(core: Core, follower: Progress) -> None:
    if follower.match_index == core.log.last_index:
        follower.caught_up_ms = core.now_ms


def advance_commit(core: Core) -> None:
    """Commits what a majority has on disk, if it is of this term; tells the followers at once."""
    index = core.majority_of(core.log.stable_index, lambda follower: follower.match_index)
    if index <= core.commit_index or core.log.term_at(index) != core.term:
        return
    first_of_term = core.commit_index < core.term_start_index
    committed = core.log.range(max(core.commit_index, core.log.base_index) + 1, index)
    core.uncommitted_bytes -= sum(len(entry.payload) for entry in committed)
    core.commit_to(index)
    for node_id, follower in core.progress.items():
        _send_commit(core, node_id, follower)
    if core.memberships.index <= index:
        track_members(core)
        if not core.is_voter:
            core.follow(RoleEvent.REMOVED, None)
            return
    if first_of_term and start_waiting_reads(core):
        send_heartbeats(core)


def _send_commit(core: Core, node_id: int, follower: Progress) -> None:
    """Sends the commit index, so that a follower need not wait for the next heartbeat to apply what it
    has."""
    commit_index = min(core.commit_index, follower.match_index)
    if commit_index > follower.commit_sent:
        follower.commit_sent = commit_index
        core.send(Heartbeat(core.node_id, node_id, core.term, commit_index, 0))


def hand_over_if_ready(core: Core) -> None:
    """Tells the heir to campaign once it has everything."""
    target = core.transfer_target
    if target is None or core.transfer_sent:
        return
    follower = core.progress.get(target)
    if follower is not None and follower.match_index == core.log.last_index:
        core.transfer_sent = True
        core.send(TimeoutNow(core.node_id, target, core.term))


# --- the follower ------------------------------------------------------------------------------


def on_append(core: Core, request: AppendRequest) -> None:
    if request.prev_index < core.commit_index:
        _accept(core, request, core.commit_index)  # all of that is the same as the leader's
        return
    if not core.log.matches(request.prev_index, request.prev_term):
        _reject(core, request)
        return
    _store(core, request.entries)
    last_index = request.prev_index + len(request.entries)
    core.commit_to(min(request.commit_index, last_index))
    _accept(core, request, last_index)


def _store(core: Core, entries: tuple[Entry, ...]) -> None:
    known = core.log.first_conflict(entries)
    if known == len(entries):
        return
    if entries[known].index <= core.log.last_index:
        core.truncate_from(entries[known].index)
    for entry in entries[known:]:
        core.log.append(entry)
        if entry.kind is EntryKind.MEMBERSHIP:
            core.memberships.append(entry.index, codec.decode_membership(entry.payload))


def _accept(core: Core, request: AppendRequest, match_index: int) -> None:
    reply = AppendReply(core.node_id, request.sender, core.term, core.incarnation, False, match_index, 0, 0)
    core.promise(reply)


def _reject(core: Core, request: AppendRequest) -> None:
    index, term = core.log.last_agreeing(request.prev_index, request.prev_term)
    core.send(
        AppendReply(
            core.node_id, request.sender, core.term, core.incarnation, True, request.prev_index, index, term
        )
    )


def on_heartbeat(core: Core, heartbeat: Heartbeat) -> None:
    """A heartbeat's commit index is one that this node has said it holds."""
    if heartbeat.commit_index <= core.log.last_index:
        core.commit_to(heartbeat.commit_index)
    if heartbeat.round:
        core.send(
            HeartbeatReply(core.node_id, heartbeat.sender, core.term, core.incarnation, heartbeat.round)
        )
