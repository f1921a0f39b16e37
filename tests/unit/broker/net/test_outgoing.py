"""From parts to a socket: gathered, by sendfile, and every region closed once whatever happens."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.dispatch import Handlers, Order
from distributedlog.broker.net.outgoing import (
    SENDFILE_MIN,
    TURN_BYTES,
    TURN_BYTES_MIN,
    Outgoing,
    Sent,
    close_regions,
)
from distributedlog.model.config import KIB, MIB
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import CorruptLogError, RegionChangedError
from distributedlog.ports.disk import SystemDisk
from distributedlog.protocol.codec import Part, join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from distributedlog.protocol.schema import Message
from distributedlog.storage.files import FileRegion, Files, ManagedFile
from tests.simulation.disk import SimDisk
from tests.unit.broker.server_stage import PATIENT, Later, Stage, run, unwatched

FILE_BYTES = 3 * MIB
CONTENT = os.urandom(FILE_BYTES)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> ManagedFile:
    path = str(tmp_path_factory.mktemp("outgoing") / "00.log")
    managed = Files(SystemDisk()).create(path)
    managed.append_at(0, CONTENT)
    return managed


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def taken(theirs: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := theirs.recv(1 << 20):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


def sent_through(outgoing: Outgoing, theirs: socket.socket) -> bytes:
    """All of it, as a client that reads gets it."""
    data = b""
    while outgoing.send() is not Sent.ALL:
        data += taken(theirs)
    return data + taken(theirs)


PIECES = st.one_of(
    st.binary(min_size=1, max_size=50),
    st.tuples(st.integers(0, 1000), st.integers(1, 300)),
    st.tuples(st.integers(0, 1000), st.integers(SENDFILE_MIN - 1, SENDFILE_MIN + 1)),
    st.tuples(st.integers(0, 1000), st.integers(500 * KIB, 2 * MIB)),
)


@given(pieces=st.lists(PIECES, max_size=12))
@settings(max_examples=40, deadline=None)
def test_bytes_and_regions_of_every_size_arrive_in_order(
    log: ManagedFile, pieces: list[bytes | tuple[int, int]]
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        outgoing = Outgoing(unwatched(ours))
        expected = b""
        for piece in pieces:
            if isinstance(piece, bytes):
                outgoing.add([piece])
                expected += piece
            else:
                position, length = piece
                outgoing.add([FileRegion(log, position, length)])
                expected += CONTENT[position : position + length]
        assert outgoing.queued_bytes == len(expected)
        assert sent_through(outgoing, theirs) == expected
    assert outgoing.queued_bytes == 0
    assert outgoing.sent_bytes == len(expected)
    assert log.pins == 0


def test_a_client_that_does_not_read_leaves_the_rest_queued_and_closing_lets_go_of_it(
    log: ManagedFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    outgoing = Outgoing(unwatched(pair[0]))
    outgoing.add([b"head", FileRegion(log, 0, FILE_BYTES), FileRegion(log, 0, 100), b"tail"])
    while outgoing.send() is not Sent.BLOCKED:
        pass
    assert 0 < outgoing.queued_bytes < FILE_BYTES
    assert log.pins == 2
    outgoing.close()
    assert log.pins == 0
    outgoing.close()
    assert log.pins == 0


@pytest.mark.parametrize("turn_bytes", [TURN_BYTES, TURN_BYTES_MIN])
def test_a_client_that_reads_as_fast_as_we_write_does_not_hold_up_the_others(
    log: ManagedFile, pair: tuple[socket.socket, socket.socket], turn_bytes: int
) -> None:
    ours, theirs = pair
    outgoing = Outgoing(unwatched(ours))
    real_sendfile = os.sendfile
    with pytest.MonkeyPatch.context() as patch:

        def sendfile_to_a_reader(out: int, source: int, offset: int, count: int) -> int:
            taken(theirs)
            return real_sendfile(out, source, offset, count)

        patch.setattr(os, "sendfile", sendfile_to_a_reader)
        outgoing.add([FileRegion(log, 0, FILE_BYTES)])
        assert outgoing.send(turn_bytes) is Sent.TURN_OVER
        assert turn_bytes <= outgoing.sent_bytes < 2 * turn_bytes
    outgoing.close()


@pytest.mark.parametrize("sizes", [[150 * KIB], [1 * KIB, 150 * KIB], [30 * KIB] * 5], ids=str)
def test_of_bytes_no_more_is_sent_in_a_turn_than_of_regions(
    pair: tuple[socket.socket, socket.socket], sizes: list[int]
) -> None:
    ours, theirs = pair
    outgoing = Outgoing(unwatched(ours))
    outgoing.add([CONTENT[:size] for size in sizes])
    turns = []
    while outgoing.queued_bytes:
        assert outgoing.send(TURN_BYTES_MIN) is (Sent.TURN_OVER if outgoing.queued_bytes else Sent.ALL)
        turns.append(taken(theirs))
    assert b"".join(turns) == b"".join(CONTENT[:size] for size in sizes)
    assert [len(turn) for turn in turns[:2]] == [TURN_BYTES_MIN, TURN_BYTES_MIN]


def test_a_region_whose_file_is_truncated_is_never_passed_off_as_what_it_was(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    for size in (100, 2 * SENDFILE_MIN):
        managed = Files(SystemDisk()).create(str(tmp_path / f"{size}.log"))
        managed.append_at(0, CONTENT[:size])
        outgoing = Outgoing(unwatched(pair[0]))
        outgoing.add([FileRegion(managed, 0, size)])
        managed.truncate(size // 2)
        with pytest.raises(RegionChangedError):
            sent_through(outgoing, pair[1])
        outgoing.close()
        assert managed.pins == 0


def test_a_region_whose_file_was_truncated_and_written_again_is_not_taken_for_the_same(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    managed = Files(SystemDisk()).create(str(tmp_path / "00.log"))
    managed.append_at(0, CONTENT[: 2 * SENDFILE_MIN])
    outgoing = Outgoing(unwatched(pair[0]))
    outgoing.add([FileRegion(managed, 0, 2 * SENDFILE_MIN)])
    managed.truncate(0)
    managed.append_at(0, bytes(2 * SENDFILE_MIN))
    with pytest.raises(RegionChangedError):
        sent_through(outgoing, pair[1])
    outgoing.close()
    assert managed.pins == 0


def test_a_file_that_ends_too_soon_is_an_error_and_not_an_endless_wait(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    path = tmp_path / "short.log"
    managed = Files(SystemDisk()).create(str(path))
    managed.append_at(0, CONTENT[: 2 * SENDFILE_MIN])
    outgoing = Outgoing(unwatched(pair[0]))
    outgoing.add([FileRegion(managed, 0, 2 * SENDFILE_MIN)])
    os.truncate(path, 10)
    with pytest.raises(CorruptLogError):
        sent_through(outgoing, pair[1])
    outgoing.close()


def test_a_file_without_a_descriptor_is_read_and_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    disk = SimDisk(1)
    disk.make_directory("d")
    managed = Files(disk).create("d/00.log")
    managed.append_at(0, CONTENT[: 3 * SENDFILE_MIN])
    outgoing = Outgoing(unwatched(pair[0]))
    outgoing.add([b"head", FileRegion(managed, 5, 2 * SENDFILE_MIN), b"tail"])
    expected = b"head" + CONTENT[5 : 5 + 2 * SENDFILE_MIN] + b"tail"
    assert sent_through(outgoing, pair[1]) == expected
    assert managed.pins == 0


def test_a_system_without_sendfile_for_it_goes_on_where_it_was(
    log: ManagedFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    real_sendfile = os.sendfile
    calls = []

    def once(out: int, source: int, offset: int, count: int) -> int:
        calls.append(count)
        if len(calls) > 1:
            raise OSError(22, "not here")
        return real_sendfile(out, source, offset, 1000)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sendfile", once)
        outgoing = Outgoing(unwatched(pair[0]))
        outgoing.add([FileRegion(log, 7, 2 * SENDFILE_MIN)])
        assert sent_through(outgoing, pair[1]) == CONTENT[7 : 7 + 2 * SENDFILE_MIN]
    assert log.pins == 0


class Cold:
    """A warmer for which nothing is in memory until the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[FileRegion, Callable[[], None]]] = []

    def warm(self, region: FileRegion, ready: Callable[[], None]) -> bool:
        self.asked.append((region, ready))
        return False


def test_a_cold_region_is_sent_once_its_pages_are_there(
    log: ManagedFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    cold, told = Cold(), []
    outgoing = Outgoing(unwatched(pair[0]), cold, lambda: told.append(True))
    outgoing.add([b"head", FileRegion(log, 0, SENDFILE_MIN)])
    assert outgoing.send() is Sent.WARMING
    assert outgoing.send() is Sent.WARMING
    assert len(cold.asked) == 1
    cold.asked[0][1]()
    assert told == [True]
    assert outgoing.send() is Sent.ALL
    assert taken(pair[1]) == b"head" + CONTENT[:SENDFILE_MIN]
    assert log.pins == 0


def test_a_region_that_a_thread_still_reads_is_closed_only_after_it(
    log: ManagedFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    cold = Cold()
    outgoing = Outgoing(unwatched(pair[0]), cold, lambda: pytest.fail("nobody is left to be told"))
    outgoing.add([FileRegion(log, 0, SENDFILE_MIN), FileRegion(log, 0, SENDFILE_MIN)])
    assert outgoing.send() is Sent.WARMING
    outgoing.close()
    assert log.pins == 1
    cold.asked[0][1]()
    assert log.pins == 0


# --- in a server -------------------------------------------------------------------------------


def fetched(payloads: list[Part]) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=0, aborted_transactions=None, records=payload)
        for index, payload in enumerate(payloads)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def fetching(reply: Callable[[], object]) -> Handlers:
    handlers = Handlers()
    serve = handlers.handles(FetchRequest, versions=(4, 11), order=Order.OVERTAKEN)
    serve(lambda services, request, context: reply())  # type: ignore[arg-type, return-value]
    return handlers


FETCH = join_parts(encode_request(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 11, 1, "c"))


def test_regions_closed_with_a_response_are_all_that_it_holds(log: ManagedFile) -> None:
    response = fetched([FileRegion(log, 0, 10), b"bytes", FileRegion(log, 0, SENDFILE_MIN)])
    assert log.pins == 2
    close_regions(response)
    assert log.pins == 0


def test_a_fetch_of_regions_arrives_whole(log: ManagedFile) -> None:
    async def story() -> None:
        sizes = [10, SENDFILE_MIN, 1 * MIB, 700]
        handlers = fetching(lambda: fetched([FileRegion(log, 0, size) for size in sizes]))
        async with Stage(PATIENT, handlers) as stage:
            client = await stage.connect()
            await client.send(FETCH + FETCH)
            for _ in range(2):
                _, response = decode_response(FetchResponse, 11, await client.frame())
                got = [partition.records for partition in response.responses[0].partitions]
                assert got == [CONTENT[:size] for size in sizes]
        assert log.pins == 0

    run(story())


def test_a_client_that_goes_away_leaves_no_region_open_neither_queued_nor_delayed(log: ManagedFile) -> None:
    async def story() -> None:
        first: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        second: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        large = [FileRegion(log, 0, FILE_BYTES) for _ in range(5)]
        replies = iter([fetched(list(large)), first, fetched([FileRegion(log, 0, 10)]), second])
        async with Stage(PATIENT, fetching(lambda: next(replies))) as stage:
            stage.reply = Later()
            client = await stage.connect(receive_bytes=4096)
            await client.send(FETCH * 4)
            await stage.counts.until(lambda: stage.counts.delayed_now == 2)
            second.set_result(fetched([FileRegion(log, 0, 20)]))
            assert log.pins == 7
            client.close()
            await stage.counts.until_closed("client gone")
            assert first.cancelled()
            await asyncio.sleep(0)
            assert log.pins == 0

    run(story())


def test_a_response_that_cannot_be_written_lets_go_of_its_regions(log: ManagedFile) -> None:
    async def story() -> None:
        def unwritable() -> FetchResponse:
            response = fetched([FileRegion(log, 0, 10), FileRegion(log, 0, FILE_BYTES)])
            response.throttle_time_ms = 1 << 40
            return response

        async with Stage(PATIENT, fetching(unwritable)) as stage:
            client = await stage.connect()
            await client.send(FETCH)
            _, response = decode_response(FetchResponse, 11, await client.frame())
            assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert log.pins == 0

    run(story())


def test_a_region_cut_short_under_a_response_ends_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        managed = Files(SystemDisk()).create(str(tmp_path / "00.log"))
        managed.append_at(0, CONTENT)
        region = FileRegion(managed, 0, FILE_BYTES)
        managed.truncate(5)
        async with Stage(PATIENT, fetching(lambda: fetched([region]))) as stage:
            client = await stage.connect()
            await client.send(FETCH)
            assert await client.is_cut()
            await stage.counts.until_closed("failed")
            assert managed.pins == 0

    run(story())
