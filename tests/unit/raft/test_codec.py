"""Messages survive the wire, and nothing that arrives is trusted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import MalformedMessageError
from distributedlog.raft import Entry, EntryKind, Membership, Message, RaftConfig, codec
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

CONFIG = RaftConfig(entry_bytes_max=64, snapshot_bytes_max=1000)
LARGE = RaftConfig()

nodes = st.integers(0, 2**31 - 1)
numbers = st.integers(0, 2**62)
memberships = st.builds(
    lambda voters, observers: Membership(voters, {n: i for n, i in observers.items() if n not in voters}),
    st.dictionaries(nodes, numbers, min_size=1, max_size=5),
    st.dictionaries(nodes, numbers, max_size=5),
)


@st.composite
def appends(draw: st.DrawFn) -> AppendRequest:
    prev_index, prev_term = draw(st.integers(0, 10**6)), draw(st.integers(0, 100))
    entries, term = [], prev_term
    for position in range(draw(st.integers(0, 5))):
        term += draw(st.integers(0, 3))
        kind = draw(st.sampled_from(EntryKind))
        payload = draw(st.binary(max_size=40))
        if kind is EntryKind.MEMBERSHIP:
            payload = codec.encode_membership(draw(memberships))
        entries.append(Entry(prev_index + 1 + position, term, kind, payload))
    message_term = term + draw(st.integers(0, 3))
    return AppendRequest(
        draw(nodes), draw(nodes), message_term, prev_index, prev_term, draw(numbers), tuple(entries)
    )  # fmt: skip


@st.composite
def installs(draw: st.DrawFn) -> InstallRequest:
    chunk, offset = draw(st.binary(max_size=40)), draw(st.integers(0, 100))
    total = offset + len(chunk) + draw(st.integers(0, 100))
    index, term = draw(numbers), draw(numbers)
    members = draw(memberships)
    return InstallRequest(draw(nodes), draw(nodes), draw(numbers), index, term, members, total, offset, chunk)


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(VoteRequest, nodes, nodes, numbers, numbers, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(VoteReply, nodes, nodes, numbers, st.booleans(), st.booleans()),
    appends(),
    st.builds(AppendReply, nodes, nodes, numbers, numbers, st.booleans(), numbers, numbers, numbers),
    st.builds(Heartbeat, nodes, nodes, numbers, numbers, numbers),
    st.builds(HeartbeatReply, nodes, nodes, numbers, numbers, numbers),
    installs(),
    st.builds(InstallReply, nodes, nodes, numbers, numbers, numbers, numbers),
    st.builds(TimeoutNow, nodes, nodes, numbers),
)


@settings(max_examples=100, deadline=None)
@given(messages)
def test_what_is_encoded_is_decoded(message: Message) -> None:
    decoded = codec.decode(codec.encode(message), LARGE)
    assert decoded == message
    assert type(decoded) is type(message)


@settings(max_examples=100, deadline=None)
@given(messages, st.data())
def test_a_message_that_was_cut_short_is_refused_or_a_shorter_snapshot_chunk(
    message: Message, data: st.DataObject
) -> None:
    encoded = codec.encode(message)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    try:
        decoded = codec.decode(cut, LARGE)
    except MalformedMessageError:
        return
    assert isinstance(decoded, InstallRequest), "only a chunk has no length of its own"


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120), st.integers(1, 9))
def test_noise_is_refused_and_never_anything_worse(noise: bytes, kind: int) -> None:
    for data in (noise, bytes([codec.VERSION, kind]) + noise):
        try:
            codec.decode(data, CONFIG)
        except MalformedMessageError:
            continue


@settings(max_examples=100, deadline=None)
@given(messages, st.data())
def test_a_flipped_byte_gives_a_message_within_the_limits_or_is_refused(
    message: Message, data: st.DataObject
) -> None:
    encoded = bytearray(codec.encode(message))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = codec.decode(bytes(encoded), CONFIG)
    except MalformedMessageError:
        return
    assert decoded.term >= 0
    if isinstance(decoded, AppendRequest):
        assert all(len(entry.payload) <= CONFIG.entry_bytes_max for entry in decoded.entries)
    if isinstance(decoded, InstallRequest):
        assert decoded.offset + len(decoded.chunk) <= decoded.total_bytes <= CONFIG.snapshot_bytes_max


def test_an_entry_count_that_cannot_be_is_refused_before_anything_is_made() -> None:
    encoded = bytearray(codec.encode(AppendRequest(1, 2, 3, 0, 0, 0, ())))
    encoded[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(MalformedMessageError, match="cut short"):
        codec.decode(bytes(encoded), CONFIG)


def test_terms_that_fall_or_pass_the_senders_are_refused() -> None:
    falling = (Entry(1, 3, EntryKind.COMMAND, b""), Entry(2, 2, EntryKind.COMMAND, b""))
    for entries, term in ((falling, 3), (falling[:1], 2)):
        with pytest.raises(MalformedMessageError, match="out of order"):
            codec.decode(codec.encode(AppendRequest(1, 2, term, 0, 0, 0, entries)), CONFIG)


def test_an_entry_over_the_limit_is_refused() -> None:
    request = AppendRequest(1, 2, 1, 0, 0, 0, (Entry(1, 1, EntryKind.COMMAND, bytes(65)),))
    with pytest.raises(MalformedMessageError, match="over the limit of 64"):
        codec.decode(codec.encode(request), CONFIG)


def test_a_snapshot_over_the_limit_is_refused() -> None:
    request = InstallRequest(1, 2, 1, 5, 1, Membership.of_voters(1), 1001, 0, b"x")
    with pytest.raises(MalformedMessageError, match="over the limit of 1000"):
        codec.decode(codec.encode(request), CONFIG)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x00\x00\x01",
        bytes(8),
        bytes(4) + (1).to_bytes(4, "big"),
        (2**31).to_bytes(4, "big") + bytes(4),
        (2).to_bytes(4, "big") + bytes(4) + bytes(24),
    ],
    ids=["empty", "cut", "no voter", "only an observer, cut", "too many", "the same twice"],
)
def test_a_membership_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        codec.decode_membership(data)
