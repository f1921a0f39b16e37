"""Messages, entries and memberships as bytes.  Numbers are big-endian.

    message    version u8 = 1 | type u8 | sender i32 | to i32 | term i64 | body by type
      1 vote request     voter incarnation i64 | last index i64 | last term i64
                         | flags u8 (1 pre-vote, 2 transfer)
      2 vote reply       flags u8 (1 pre-vote, 2 granted)
      3 append request   prev index i64 | prev term i64 | commit index i64 | count u32 | entries
      4 append reply     incarnation i64 | flags u8 (1 rejected) | match i64 | hint index i64 | hint term i64
      5 heartbeat        commit index i64 | round i64
      6 heartbeat reply  incarnation i64 | round i64
      7 install request  snapshot index i64 | snapshot term i64 | total u64 | offset u64
                         | membership length u32 | membership | chunk to the end
      8 install reply    incarnation i64 | snapshot index i64 | next offset u64
      9 timeout now      nothing
    entry      term i64 | kind u8 | length u32 | payload          (the index follows from the place)
    membership voters u32 | observers u32 | (node i32 | incarnation i64) each

`decode` trusts nothing: a length is checked against what is there, and against its limit, before it is
used; numbers are never negative; entries' terms never fall and never pass the sender's.
"""

from collections.abc import Callable
from struct import Struct

from distributedlog.model.errors import MalformedMessageError, MembershipError
from distributedlog.raft.config import RaftConfig
from distributedlog.raft.membership import MEMBERS_MAX, Membership
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallRequest,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

VERSION = 1
ENTRY_OVERHEAD_BYTES = 13
_HEADER = Struct(">BBiiq")
_VOTE_REQUEST = Struct(">BBiiqqqqB")
_VOTE_REPLY = Struct(">BBiiqB")
_APPEND_REQUEST = Struct(">BBiiqqqqI")
_APPEND_REPLY = Struct(">BBiiqqBqqq")
_HEARTBEAT = Struct(">BBiiqqq")
_INSTALL_REQUEST = Struct(">BBiiqqqqqI")
_INSTALL_REPLY = Struct(">BBiiqqqq")
_ENTRY = Struct(">qBI")
_COUNTS = Struct(">II")
_MEMBER = Struct(">iq")
_KINDS = {int(kind): kind for kind in EntryKind}


# --- memberships -------------------------------------------------------------------------------


def encode_membership(membership: Membership) -> bytes:
    parts = [_COUNTS.pack(len(membership.voters), len(membership.observers))]
    parts += [_MEMBER.pack(*member) for member in membership.voters.items()]
    parts += [_MEMBER.pack(*member) for member in membership.observers.items()]
    return b"".join(parts)


def decode_membership(data: bytes) -> Membership:
    if len(data) < _COUNTS.size:
        raise MalformedMessageError("a membership is cut short")
    voters, observers = _COUNTS.unpack_from(data)
    if voters > MEMBERS_MAX or observers > MEMBERS_MAX:
        raise MalformedMessageError(f"a membership of {voters} voters and {observers} observers is too large")
    if len(data) != _COUNTS.size + (voters + observers) * _MEMBER.size:
        raise MalformedMessageError("a membership's length does not fit its counts")
    members = list(_MEMBER.iter_unpack(data[_COUNTS.size :]))
    if len({node_id for node_id, _ in members}) != len(members):
        raise MalformedMessageError("a membership names a node twice")
    try:
        return Membership(dict(members[:voters]), dict(members[voters:]))
    except MembershipError as error:
        raise MalformedMessageError(str(error)) from error


# --- entries -----------------------------------------------------------------------------------


def encode_entry(entry: Entry) -> bytes:
    return _ENTRY.pack(entry.term, entry.kind, len(entry.payload)) + entry.payload


def decode_entry(data: bytes, position: int, index: int, bytes_max: int) -> tuple[Entry, int]:
    """The entry at `position`, and where the next one begins."""
    start = position + ENTRY_OVERHEAD_BYTES
    if start > len(data):
        raise MalformedMessageError("an entry is cut short")
    term, kind_number, length = _ENTRY.unpack_from(data, position)
    kind = _KINDS.get(kind_number)
    if kind is None:
        raise MalformedMessageError(f"an entry is of the unknown kind {kind_number}")
    if length > bytes_max or start + length > len(data):
        raise MalformedMessageError(
            f"an entry of {length} bytes is cut short or over the limit of {bytes_max}"
        )
    payload = data[start : start + length]
    if kind is EntryKind.MEMBERSHIP:
        decode_membership(payload)
    return Entry(index, term, kind, payload), start + length


# --- messages ----------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    return _ENCODERS[type(message)](message)


def decode(data: bytes, config: RaftConfig) -> Message:
    if len(data) < _HEADER.size:
        raise MalformedMessageError("a message is cut short")
    if data[0] != VERSION:
        raise MalformedMessageError(f"a message is of version {data[0]}; this node speaks {VERSION}")
    decoder = _DECODERS.get(data[1])
    if decoder is None:
        raise MalformedMessageError(f"a message is of the unknown type {data[1]}")
    return decoder(data, config)


def _fields(layout: Struct, data: bytes) -> tuple[int, ...]:
    if len(data) < layout.size:
        raise MalformedMessageError("a message is cut short")
    fields: tuple[int, ...] = layout.unpack_from(data)
    if min(fields) < 0:
        raise MalformedMessageError("a message has a negative number")
    return fields


def _exact_fields(layout: Struct, data: bytes) -> tuple[int, ...]:
    if len(data) != layout.size:
        raise MalformedMessageError(f"a message has {len(data)} bytes where {layout.size} belong")
    return _fields(layout, data)


def _encode_vote_request(m: VoteRequest) -> bytes:
    flags = m.pre_vote | m.transfer << 1
    return _VOTE_REQUEST.pack(
        VERSION, 1, m.sender, m.to, m.term, m.voter_incarnation, m.last_index, m.last_term, flags
    )


def _decode_vote_request(data: bytes, _: RaftConfig) -> VoteRequest:
    *body, flags = _exact_fields(_VOTE_REQUEST, data)[2:]
    sender, to, term, incarnation, last_index, last_term = body
    return VoteRequest(sender, to, term, incarnation, last_index, last_term, bool(flags & 1), bool(flags & 2))


def _encode_vote_reply(m: VoteReply) -> bytes:
    return _VOTE_REPLY.pack(VERSION, 2, m.sender, m.to, m.term, m.pre_vote | m.granted << 1)


def _decode_vote_reply(data: bytes, _: RaftConfig) -> VoteReply:
    sender, to, term, flags = _exact_fields(_VOTE_REPLY, data)[2:]
    return VoteReply(sender, to, term, bool(flags & 1), bool(flags & 2))


def _encode_append_request(m: AppendRequest) -> bytes:
    fixed = _APPEND_REQUEST.pack(
        VERSION, 3, m.sender, m.to, m.term, m.prev_index, m.prev_term, m.commit_index, len(m.entries)
    )
    return b"".join([fixed, *map(encode_entry, m.entries)])


def _decode_append_request(data: bytes, config: RaftConfig) -> AppendRequest:
    sender, to, term, prev_index, prev_term, commit_index, count = _fields(_APPEND_REQUEST, data)[2:]
    if count > (len(data) - _APPEND_REQUEST.size) // ENTRY_OVERHEAD_BYTES:
        raise MalformedMessageError(f"an append of {count} entries is cut short")
    entries, position, term_before = [], _APPEND_REQUEST.size, prev_term
    for index in range(prev_index + 1, prev_index + 1 + count):
        entry, position = decode_entry(data, position, index, config.entry_bytes_max)
        if not term_before <= entry.term <= term:
            raise MalformedMessageError(f"the term {entry.term} of entry {index} is out of order")
        term_before = entry.term
        entries.append(entry)
    if position != len(data):
        raise MalformedMessageError("an append goes on after its last entry")
    return AppendRequest(sender, to, term, prev_index, prev_term, commit_index, tuple(entries))


def _encode_append_reply(m: AppendReply) -> bytes:
    return _APPEND_REPLY.pack(VERSION, 4, *m)


def _decode_append_reply(data: bytes, _: RaftConfig) -> AppendReply:
    sender, to, term, incarnation, rejected, match, index, hint = _exact_fields(_APPEND_REPLY, data)[2:]
    return AppendReply(sender, to, term, incarnation, bool(rejected), match, index, hint)


def _encode_heartbeat(m: Heartbeat) -> bytes:
    return _HEARTBEAT.pack(VERSION, 5, *m)


def _decode_heartbeat(data: bytes, _: RaftConfig) -> Heartbeat:
    return Heartbeat(*_exact_fields(_HEARTBEAT, data)[2:])


def _encode_heartbeat_reply(m: HeartbeatReply) -> bytes:
    return _HEARTBEAT.pack(VERSION, 6, *m)


def _decode_heartbeat_reply(data: bytes, _: RaftConfig) -> HeartbeatReply:
    return HeartbeatReply(*_exact_fields(_HEARTBEAT, data)[2:])


def _encode_install_request(m: InstallRequest) -> bytes:
    membership = encode_membership(m.membership)
    numbers = (m.sender, m.to, m.term, m.snapshot_index, m.snapshot_term, m.total_bytes, m.offset)
    fixed = _INSTALL_REQUEST.pack(VERSION, 7, *numbers, len(membership))
    return fixed + membership + m.chunk


def _decode_install_request(data: bytes, config: RaftConfig) -> InstallRequest:
    sender, to, term, index, snapshot_term, total, offset, length = _fields(_INSTALL_REQUEST, data)[2:]
    start = _INSTALL_REQUEST.size
    if start + length > len(data):
        raise MalformedMessageError("a snapshot's membership is cut short")
    chunk_bytes = len(data) - start - length
    if total > config.snapshot_bytes_max or offset + chunk_bytes > total:
        raise MalformedMessageError(
            f"a chunk of {chunk_bytes} bytes at {offset} is outside a snapshot of {total} bytes, "
            f"or that is over the limit of {config.snapshot_bytes_max}"
        )
    membership = decode_membership(data[start : start + length])
    return InstallRequest(
        sender, to, term, index, snapshot_term, membership, total, offset, data[start + length :]
    )


def _encode_install_reply(m: InstallReply) -> bytes:
    return _INSTALL_REPLY.pack(VERSION, 8, *m)


def _decode_install_reply(data: bytes, _: RaftConfig) -> InstallReply:
    return InstallReply(*_exact_fields(_INSTALL_REPLY, data)[2:])


def _encode_timeout_now(m: TimeoutNow) -> bytes:
    return _HEADER.pack(VERSION, 9, *m)


def _decode_timeout_now(data: bytes, _: RaftConfig) -> TimeoutNow:
    return TimeoutNow(*_exact_fields(_HEADER, data)[2:])


_ENCODERS: dict[type, Callable[..., bytes]] = {
    VoteRequest: _encode_vote_request,
    VoteReply: _encode_vote_reply,
    AppendRequest: _encode_append_request,
    AppendReply: _encode_append_reply,
    Heartbeat: _encode_heartbeat,
    HeartbeatReply: _encode_heartbeat_reply,
    InstallRequest: _encode_install_request,
    InstallReply: _encode_install_reply,
    TimeoutNow: _encode_timeout_now,
}
_DECODERS: dict[int, Callable[[bytes, RaftConfig], Message]] = {
    1: _decode_vote_request,
    2: _decode_vote_reply,
    3: _decode_append_request,
    4: _decode_append_reply,
    5: _decode_heartbeat,
    6: _decode_heartbeat_reply,
    7: _decode_install_request,
    8: _decode_install_reply,
    9: _decode_timeout_now,
}
