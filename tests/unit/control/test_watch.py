"""Committed metadata for nodes that are no voters: from any voter, without gaps, within bounds."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc.aio import UnaryStreamMultiCallable
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.control import services
from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.authentication import authenticate
from distributedlog.control.contract import Identity
from distributedlog.control.conversion.envelope import header
from distributedlog.control.credentials import WATCH_METADATA
from distributedlog.control.services import UPDATE_BYTES, MetadataFeed
from distributedlog.control.watcher import (
    SNAPSHOT_BYTES_MAX,
    Incoming,
    MetadataWatcher,
    UnusableStreamError,
)
from tests.unit.control.stage import CLUSTER, HOST, Log, Node, Seen, credentials, pool_to, run


def entries(*offsets: int) -> list[tuple[str, int, bytes]]:
    return [("entry", offset, b"%d" % offset) for offset in offsets]


def test_a_watcher_gets_what_is_there_and_what_comes() -> None:
    async def story() -> None:
        log, seen = Log(), Seen()
        log.append(0, b"0")
        log.append(2, b"2")  # offset 1 holds no metadata
        node = await Node(2, metadata=log).start()
        pool = pool_to(node)
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch)
        watcher.start()
        await seen.until(2)
        log.append(3, b"3")
        await seen.until(3)
        assert seen.everything == entries(0, 2, 3)
        assert 1 < seen.batches <= 3
        await watcher.stop()
        await pool.close()
        await node.stop()
        assert log.sinks == []

    run(story)


def test_a_snapshot_comes_whole_and_before_the_entries() -> None:
    async def story() -> None:
        log, seen = Log(), Seen()
        image = bytes(range(256)) * (3 * UPDATE_BYTES // 256) + b"the end"
        log.snapshots.append((41, image))
        log.append(42, b"42")
        node = await Node(2, metadata=log).start()
        pool = pool_to(node)
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch)
        watcher.start()
        await seen.until(42)
        assert seen.everything == [("snapshot", 41, image), *entries(42)]
        await watcher.stop()
        await pool.close()
        await node.stop()

    run(story)


def test_an_empty_snapshot_is_one_too() -> None:
    async def story() -> None:
        log, seen = Log(), Seen()
        log.snapshots.append((5, b""))
        node = await Node(2, metadata=log).start()
        pool = pool_to(node)
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch)
        watcher.start()
        await seen.until(5)
        assert seen.everything == [("snapshot", 5, b"")]
        await watcher.stop()
        await pool.close()
        await node.stop()

    run(story)


def test_a_watcher_whose_voter_dies_goes_on_with_another_where_it_was() -> None:
    async def story() -> None:
        logs = {2: Log(), 3: Log()}
        for log in logs.values():
            for offset in range(5):
                log.append(offset, b"%d" % offset)
        nodes = {number: await Node(number, metadata=log).start() for number, log in logs.items()}
        seen = Seen()
        pool = pool_to(*nodes.values())
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch)
        watcher.start()
        await seen.until(4)
        assert watcher.voter is not None
        first = watcher.voter
        other = 5 - first
        await nodes.pop(first).stop()
        logs[other].append(5, b"5")
        await seen.until(5)
        assert seen.everything == entries(0, 1, 2, 3, 4, 5)
        assert watcher.voter == other
        assert logs[other].watched_from[0] == 5
        await watcher.stop()
        await pool.close()
        await nodes[other].stop()

    run(story)


def test_a_watcher_switches_when_told_and_passes_over_a_voter_that_lags() -> None:
    async def story() -> None:
        fresh, stale = Log(), Log()
        for offset in range(5):
            fresh.append(offset, b"%d" % offset)
        fresh_node = await Node(2, metadata=fresh).start()
        stale_node = await Node(3, metadata=stale).start()
        seen = Seen()
        pool = pool_to(fresh_node)
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch)
        watcher.start()
        await seen.until(4)
        stale.snapshots.append((2, b"an old image"))
        pool.peers[3] = stale_node.address
        fresh.watched.clear()
        watcher.switch()
        await stale.watched.wait()
        await fresh.watched.wait()
        fresh.append(5, b"5")
        await seen.until(5)
        assert seen.everything == entries(0, 1, 2, 3, 4, 5)
        await watcher.stop()
        await pool.close()
        await fresh_node.stop()
        await stale_node.stop()

    run(story)


def test_metadata_that_the_sink_cannot_take_stops_the_watcher_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Seen):
        def handle_entry(self, payload: bytes, offset: int) -> None:
            raise ZeroDivisionError("cannot follow")

    async def story() -> None:
        log, seen = Log(), Broken()
        log.append(0, b"0")
        node = await Node(2, metadata=log).start()
        pool = pool_to(node)
        told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch, failed=told.set_result)
        watcher.start()
        assert isinstance(await told, ZeroDivisionError)
        await watcher.stop()
        await pool.close()
        await node.stop()

    run(story)
    assert "cannot follow" in caplog.text


def test_a_watcher_without_any_voter_waits_for_one() -> None:
    async def story() -> None:
        log, seen = Log(), Seen()
        log.append(0, b"0")
        node = await Node(2, metadata=log).start()
        pool = pool_to()
        watcher = MetadataWatcher(pool, seen, on_batch=seen.on_batch)
        watcher.start()
        pool.peers[2] = node.address
        await seen.until(0)
        await watcher.stop()
        await pool.close()
        await node.stop()

    run(story)


async def watching(channel: grpc.aio.Channel) -> Callable[[bytes], Any]:
    """Calls by hand, in a session of node 9's."""
    watch: UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH_METADATA)
    session = await authenticate(channel, credentials(9), 2)
    return lambda data: watch(data, metadata=session.metadata(WATCH_METADATA, data))


def test_a_server_that_stops_ends_the_watches_at_once() -> None:
    async def story() -> None:
        log = Log()
        node = await Node(2, metadata=log).start()
        channel = grpc.aio.insecure_channel(f"{HOST}:{node.port}")
        watch = await watching(channel)
        call = watch(request(0))
        await log.watched.wait()
        await node.stop(grace_s=20)
        assert await call.code() is grpc.StatusCode.OK
        await channel.close()

    run(story)


# --- refused -----------------------------------------------------------------------------------


def request(from_offset: int, cluster_id: str = CLUSTER) -> bytes:
    identity = Identity(cluster_id, 9)
    return pb.WatchMetadataRequest(header=header(identity, 2), from_offset=from_offset).SerializeToString()


@pytest.mark.parametrize(
    ("data", "has_metadata", "status"),
    [
        (request(0, "another"), True, grpc.StatusCode.FAILED_PRECONDITION),
        (request(0), False, grpc.StatusCode.FAILED_PRECONDITION),
        (request(-1), True, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\xff\xff", True, grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(1024 * 1024), True, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["another cluster", "no metadata", "no offset", "garbage", "oversize"],
)
def test_a_watch_that_makes_no_sense_is_refused(
    data: bytes, has_metadata: bool, status: grpc.StatusCode
) -> None:
    async def story() -> None:
        log = Log()
        node = await Node(2, metadata=log if has_metadata else None).start()
        channel = grpc.aio.insecure_channel(f"{HOST}:{node.port}")
        watch = await watching(channel)
        call = watch(data)
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        assert await call.code() is status
        assert log.watched_from == []
        await channel.close()
        await node.stop()

    run(story)


def test_a_watcher_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(services, "WRITE_TIMEOUT_S", 0.2)
        cut = asyncio.Event()
        close = MetadataFeed.close

        def closed(feed: MetadataFeed) -> None:
            close(feed)
            cut.set()

        monkeypatch.setattr(MetadataFeed, "close", closed)
        log = Log()
        for offset in range(40):
            log.append(offset, bytes(UPDATE_BYTES))
        node = await Node(2, metadata=log).start()
        channel = grpc.aio.insecure_channel(f"{HOST}:{node.port}")
        watch = await watching(channel)
        call = watch(request(0))
        await cut.wait()
        received = 0
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for _ in call:
                received += 1
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert received < 40
        await channel.close()
        await node.stop()

    run(story)


def test_no_more_watch_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(services, "WATCHES_MAX", 1)
        log = Log()
        node = await Node(2, metadata=log).start()
        channel = grpc.aio.insecure_channel(f"{HOST}:{node.port}")
        watch = await watching(channel)
        first = watch(request(0))
        await log.watched.wait()
        second = watch(request(0))
        assert await second.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        log.append(0, b"0")
        assert await first.read()
        await channel.close()
        await node.stop()

    run(story)


# --- the queue between source and stream -------------------------------------------------------


def drained(feed: MetadataFeed) -> list[tuple[str, int]]:
    out: list[tuple[str, int]] = []
    for update in feed.take():
        if update.WhichOneof("update") == "snapshot":
            out.append(("snapshot", update.snapshot.offset))
        else:
            out += [("entry", entry.offset) for entry in update.entries.entries]
    return out


@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    bytes_max=st.integers(1, 60),
    pace=st.integers(1, 5),
    data=st.data(),
)
@settings(max_examples=60)
def test_however_small_the_queue_nothing_is_left_out(
    sizes: list[int], bytes_max: int, pace: int, data: st.DataObject
) -> None:
    async def story() -> None:
        log = Log()
        before = data.draw(st.integers(0, len(sizes)))
        for offset, size in enumerate(sizes[:before]):
            log.append(offset, bytes(size))
        feed = MetadataFeed(log, 0, bytes_max=bytes_max)
        got: list[tuple[str, int]] = []
        for offset, size in enumerate(sizes[before:], before):
            log.append(offset, bytes(size))
            assert len(log.sinks) <= 1
            if offset % pace == 0 and await feed.wait():
                got += drained(feed)
        while len(got) < len(sizes) and await feed.wait():
            got += drained(feed)
        assert got == [("entry", offset) for offset in range(len(sizes))]
        feed.close()
        assert log.sinks == []
        assert not await feed.wait()

    asyncio.run(story())


def test_a_snapshot_replaces_the_entries_that_wait() -> None:
    async def story() -> None:
        log = Log()
        feed = MetadataFeed(log, 0)
        feed.handle_entry(b"0", 0)
        feed.handle_snapshot(b"image", 7)
        feed.handle_entry(b"old", 7)
        feed.handle_entry(b"8", 8)
        assert drained(feed) == [("snapshot", 7), ("entry", 8)]
        feed.close()

    asyncio.run(story())


# --- what comes in -----------------------------------------------------------------------------


def chunk(offset: int, total: int, data: bytes) -> pb.MetadataUpdate:
    return pb.MetadataUpdate(snapshot=pb.SnapshotChunk(offset=offset, total_bytes=total, data=data))


def entry(offset: int) -> pb.MetadataUpdate:
    return pb.MetadataUpdate(
        entries=pb.MetadataEntries(entries=[pb.MetadataEntry(offset=offset, payload=b"")])
    )


@pytest.mark.parametrize(
    "updates",
    [
        [chunk(7, SNAPSHOT_BYTES_MAX + 1, b"x")],
        [chunk(7, 2, b"x"), chunk(8, 2, b"y")],
        [chunk(7, 2, b"x"), chunk(7, 3, b"y")],
        [chunk(7, 2, b"xyz")],
        [chunk(7, 2, b"")],
        [chunk(7, 2, b"x"), entry(8)],
        [chunk(3, 1, b"x")],
        [entry(4)],
        [entry(5), entry(5)],
        [entry(6), entry(5)],
    ],
    ids=[
        "too large", "two offsets", "two sizes", "more than said", "no progress", "cut short", "old snapshot",
        "old entry", "twice", "backward",
    ],
)  # fmt: skip
def test_updates_that_do_not_go_forward_are_refused(updates: list[pb.MetadataUpdate]) -> None:
    incoming = Incoming(Seen())
    incoming.next_offset = 5
    for update in updates[:-1]:
        incoming.take(update)
    with pytest.raises(UnusableStreamError):
        incoming.take(updates[-1])


def test_an_update_of_a_newer_kind_is_skipped() -> None:
    seen = Seen()
    incoming = Incoming(seen)
    assert not incoming.take(pb.MetadataUpdate())
    assert incoming.take(entry(0))
    assert seen.offsets == [0]
