"""From a stream to frames, on a real pair of sockets."""

import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.admission import SMALL_FRAME_BYTES_MAX
from distributedlog.broker.net.incoming import GROWTH_BYTES, SCRATCH_BYTES, Incoming
from distributedlog.model.config import KIB, MIB
from tests.unit.broker.server_stage import unwatched

SCRATCH = bytearray(SCRATCH_BYTES)
"""Shared, as in a server: nothing may stay in it."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def drawn(sizes: list[int]) -> list[bytes]:
    return [bytes([number % 251]) * size for number, size in enumerate(sizes)]


def received(incoming: Incoming, ours: socket.socket) -> list[bytearray]:
    if incoming.is_waiting_for_room:
        incoming.make_room()
    frames = incoming.receive(unwatched(ours))
    assert frames is not None
    return frames


def buffer_bytes(incoming: Incoming) -> int:
    return len(incoming._frame or b"")


@given(
    st.lists(
        st.one_of(st.integers(0, 40), st.integers(SMALL_FRAME_BYTES_MAX - 3, SMALL_FRAME_BYTES_MAX + 300)),
        max_size=6,
    ),
    st.lists(st.integers(1, 100_000), max_size=12),
)
@settings(max_examples=80, deadline=None)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    sent = drawn(sizes)
    stream = b"".join(map(framed, sent))
    frames: list[bytearray] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        incoming = Incoming(SCRATCH, 1 * MIB)
        position = 0
        for cut in [*cuts, *[50_000] * (len(stream) // 50_000 + 1)]:
            chunk = stream[position : position + min(cut, 50_000)]
            position += len(chunk)
            theirs.sendall(chunk)
            for _ in range(3):
                frames += received(incoming, ours)
            SCRATCH[:] = b"\xaa" * SCRATCH_BYTES
    assert frames == sent
    assert not incoming.is_under_way
    assert incoming.reserved_bytes == 0


def test_the_end_of_the_stream_is_not_an_empty_receipt(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    incoming = Incoming(SCRATCH, 1 * MIB)
    assert incoming.receive(unwatched(ours)) == []
    theirs.sendall(framed(b"abc")[:6])
    assert incoming.receive(unwatched(ours)) == []
    theirs.close()
    assert incoming.receive(unwatched(ours)) is None


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1 * MIB + 1])
def test_a_size_out_of_range_is_seen_behind_the_frames_before_it(
    size: int, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    incoming = Incoming(SCRATCH, 1 * MIB)
    theirs.sendall(framed(b"good") + struct.pack(">i", size))
    assert received(incoming, ours) == [bytearray(b"good")]
    assert incoming.failure is not None
    assert str(size) in str(incoming.failure)
    assert not incoming.is_under_way


def test_a_large_frame_has_no_buffer_before_there_is_room_and_then_one_that_grows(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    incoming = Incoming(SCRATCH, 100 * MIB)
    theirs.sendall(struct.pack(">i", 50 * MIB) + bytes(10))
    assert incoming.receive(unwatched(ours)) == []
    assert (incoming.is_waiting_for_room, incoming.reserved_bytes) == (True, 0)
    assert buffer_bytes(incoming) == 10
    incoming.make_room()
    assert (incoming.is_waiting_for_room, incoming.reserved_bytes) == (False, 50 * MIB)
    assert buffer_bytes(incoming) == GROWTH_BYTES


def test_what_follows_a_frame_under_way_is_not_lost_to_its_buffer(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    incoming = Incoming(SCRATCH, 1 * MIB)
    first, second = b"a" * 30 * KIB, b"b" * 20
    stream = framed(first) + framed(second)
    theirs.sendall(stream[:1000])
    assert incoming.receive(unwatched(ours)) == []
    theirs.sendall(stream[1000:])
    assert received(incoming, ours) == [bytearray(first), bytearray(second)]


def test_a_frame_whose_buffer_still_grows_takes_nothing_that_is_not_its_own(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    incoming = Incoming(SCRATCH, 100 * MIB)
    sent = [os.urandom(GROWTH_BYTES + 300 * KIB), b"next"]
    stream = b"".join(map(framed, sent))
    frames: list[bytearray] = []
    for position in range(0, len(stream), 90_001):
        theirs.sendall(stream[position : position + 90_001])
        for _ in range(3):
            frames += received(incoming, ours)
    assert frames == sent


def test_a_full_scratch_buffer_says_that_more_may_be_there(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    incoming = Incoming(SCRATCH, 1 * MIB)
    theirs.sendall(framed(b"x" * 1000) * 70)
    assert len(received(incoming, ours)) == 65
    assert incoming.may_receive_more
    assert len(received(incoming, ours)) == 5
    assert not incoming.may_receive_more
