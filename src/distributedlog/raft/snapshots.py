"""Snapshots: the state instead of the entries that made it.

Own: the state machine's state after an applied entry replaces the entries up to it; a margin of entries
is kept, so that a follower slightly behind is still fed from the log.

Sent: a follower whose next entry was trimmed away gets the newest snapshot in chunks, one at a time, each
answered with the offset that is wanted next; so a lost, doubled or late chunk costs a repetition and
nothing else.  A snapshot is held in memory while it is sent or received; its size is bounded, and checked
before a byte of it is kept.

Received: if the log already has the snapshot's last entry, the log stays, tail and all.  Otherwise the
log is replaced.  The snapshot is durable before the old log is dropped and before it is answered for; a
crash between leaves the old log under a newer snapshot, which recovery recognises.  A snapshot that the
state machine cannot read is refused with its last chunk, and what came of it is dropped (`admission`).
"""

from distributedlog.model.errors import ConsensusError, OffsetOutOfRangeError, RecordTooLargeError
from distributedlog.raft.core import Core, IncomingSnapshot
from distributedlog.raft.messages import AppendReply, InstallReply, InstallRequest, Snapshot
from distributedlog.raft.progress import Mode, Progress

# --- the own -----------------------------------------------------------------------------------


def take_snapshot(core: Core, index: int, data: bytes) -> None:
    """Takes `data`, the state after `index`, which must have been given out to be applied, as a snapshot."""
    if index > core.applied_index:
        raise OffsetOutOfRangeError(f"entry {index} is not applied yet; the last one is {core.applied_index}")
    if len(data) > core.config.snapshot_bytes_max:
        raise RecordTooLargeError(
            f"the snapshot has {len(data)} bytes; a follower takes at most {core.config.snapshot_bytes_max}"
        )
    term = core.log.term_at(index)
    if term is None or (core.snapshot is not None and index <= core.snapshot.index):
        return  # a newer one is there
    core.snapshot = Snapshot(index, term, core.memberships.at(index), data)
    core.snapshot_unsaved = True
    core.log.trim_to(index - core.config.entries_kept_behind_snapshot)
    core.memberships.forget_before(index)


# --- the leader's side -------------------------------------------------------------------------


def begin_snapshot(core: Core, node_id: int, follower: Progress) -> None:
    if core.snapshot is None:
        raise ConsensusError(f"node {core.node_id} trimmed its log without a snapshot")
    follower.begin_snapshot(core.snapshot, core.now_ms)
    _send_chunk(core, node_id, follower)


def resend_chunk(core: Core, node_id: int, follower: Progress) -> None:
    follower.moved_ms = core.now_ms
    _send_chunk(core, node_id, follower)


def _send_chunk(core: Core, node_id: int, follower: Progress) -> None:
    snapshot = follower.snapshot
    if snapshot is None:
        return
    offset = follower.chunk_offset
    chunk = snapshot.data[offset : offset + core.config.snapshot_chunk_bytes]
    core.send(
        InstallRequest(
            core.node_id,
            node_id,
            core.term,
            snapshot.index,
            snapshot.term,
            snapshot.membership,
            len(snapshot.data),
            offset,
            chunk,
        )
    )


def on_install_reply(core: Core, reply: InstallReply, follower: Progress) -> None:
    snapshot = follower.snapshot
    if follower.mode is not Mode.SNAPSHOT or snapshot is None or snapshot.index != reply.snapshot_index:
        return
    if reply.next_offset > len(snapshot.data) or reply.next_offset == follower.chunk_offset:
        return  # the last chunk is answered when the snapshot is durable
    follower.chunk_offset = reply.next_offset
    resend_chunk(core, reply.sender, follower)


# --- the follower's side -----------------------------------------------------------------------


def on_install(core: Core, request: InstallRequest) -> None:
    if request.snapshot_index <= core.commit_index:
        _done(core, request, core.commit_index)
    elif core.log.matches(request.snapshot_index, request.snapshot_term):
        core.commit_to(request.snapshot_index)
        _done(core, request, request.snapshot_index)
    else:
        _receive(core, request)


def completed_by(core: Core, request: InstallRequest) -> bytes | None:
    """The whole snapshot that would be installed if this request were taken; None if none would be."""
    if request.term < core.term or request.snapshot_index <= core.commit_index:
        return None
    if core.log.matches(request.snapshot_index, request.snapshot_term):
        return None
    incoming = core.incoming if request.term == core.term else None  # a later term drops what came before
    is_same = incoming is not None and _is_of(incoming, request)
    before = bytes(incoming.data) if incoming is not None and is_same else b""
    if request.offset != len(before) or len(before) + len(request.chunk) != request.total_bytes:
        return None
    return before + request.chunk


def _is_of(incoming: IncomingSnapshot, request: InstallRequest) -> bool:
    wanted = (request.snapshot_index, request.snapshot_term, request.total_bytes)
    return (incoming.index, incoming.term, incoming.total_bytes) == wanted


def _done(core: Core, request: InstallRequest, match_index: int) -> None:
    core.promise(
        AppendReply(core.node_id, request.sender, core.term, core.incarnation, False, match_index, 0, 0)
    )


def _receive(core: Core, request: InstallRequest) -> None:
    incoming = core.incoming
    if incoming is None or not _is_of(incoming, request):
        if request.total_bytes > core.config.snapshot_bytes_max:
            return  # never fits: the sender's limit is larger than ours
        incoming = core.incoming = IncomingSnapshot(
            request.snapshot_index, request.snapshot_term, request.membership, request.total_bytes
        )
    if request.offset == len(incoming.data):
        if len(incoming.data) + len(request.chunk) > incoming.total_bytes:
            core.incoming = None
            return
        incoming.data += request.chunk
    if len(incoming.data) == incoming.total_bytes:
        _install(core, incoming)
        _done(core, request, incoming.index)
        return
    core.send(
        InstallReply(
            core.node_id, request.sender, core.term, core.incarnation, incoming.index, len(incoming.data)
        )
    )


def _install(core: Core, incoming: IncomingSnapshot) -> None:
    """The snapshot takes the log's place."""
    core.incoming = None
    core.snapshot = Snapshot(incoming.index, incoming.term, incoming.membership, bytes(incoming.data))
    core.snapshot_unsaved = core.snapshot_installed = True
    core.log.reset(incoming.index, incoming.term)
    core.memberships.reset(incoming.index, incoming.membership)
    core.commit_index = core.applied_index = incoming.index
