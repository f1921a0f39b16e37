"""Committed metadata for a node that is no voter: follows any voter, and moves on when that fails.

    pick a voter -> stream from the offset behind the last one received -> sink
         ^                |-> cannot be reached, broke, refused, lags behind us: pause with jitter, next voter
         |                |-> lived for its time: next voter, at once
         '----------------'

A stream lives for a while only, because a voter that is cut off from the majority looks just like a cluster
where nothing happens.  `switch` ends it before its time, for a caller that knows better.

The sink sees every offset at most once and in rising order, whoever it came from: all voters agree on what is
committed.  A voter that has less than we do already answers with an older snapshot; it is passed over.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import grpc
from grpc.aio import AioRpcError, UnaryStreamMultiCallable

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.channels import ControllerChannelPool
from distributedlog.control.connections import connected
from distributedlog.control.contract import MetadataSink
from distributedlog.control.conversion.envelope import header, parse
from distributedlog.control.credentials import WATCH_METADATA
from distributedlog.control.options import MESSAGE_BYTES_MAX
from distributedlog.model.errors import DlogError, MalformedMessageError

SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024
STREAM_LIFE_MS: Final = (30_000, 60_000)
PAUSE_MS: Final = (20, 500)

_log = logging.getLogger(__name__)


class MetadataWatcher:
    """Call everything on the control loop."""

    def __init__(
        self,
        channels: ControllerChannelPool,
        sink: MetadataSink,
        *,
        on_batch: Callable[[], None],
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`on_batch` is called whenever the sink got something; `failed`, once, when the sink raised."""
        self._channels = channels
        self._sink = sink
        self._on_batch = on_batch
        self._failed = failed
        self._incoming = Incoming(sink)
        self._voter: int | None = None
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None

    @property
    def voter(self) -> int | None:
        """The one that is followed now, or was last."""
        return self._voter

    def start(self, from_offset: int = 0) -> None:
        self._incoming.next_offset = from_offset
        self._task = asyncio.get_running_loop().create_task(self._run())

    def switch(self) -> None:
        """Follows another voter from now on, if there is one."""
        if self._call is not None:
            self._call.cancel()

    async def stop(self) -> None:
        """The sink is not called again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- following -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                self._voter = self._next_voter()
                if self._voter is None or not await self._follow(self._voter):
                    await asyncio.sleep(self._channels.randomness.between(*PAUSE_MS) / 1000)
        except Exception as broken:  # the sink cannot go on: neither can we
            _log.exception("metadata that was committed cannot be taken")
            if self._failed is None:
                raise
            self._failed(broken)

    def _next_voter(self) -> int | None:
        """Another than the last one, if there is another; by chance, so that brokers spread."""
        voters = sorted(self._channels.peers.keys() - {self._channels.identity.node_id})
        others = [voter for voter in voters if voter != self._voter] or voters
        return others[self._channels.randomness.between(0, len(others) - 1)] if others else None

    async def _follow(self, node_id: int) -> bool:
        """Follows until the stream ends; returns whether anything came."""
        channel = self._channels.connections.channel(node_id)
        if channel is None or not await connected(channel):
            return False
        try:
            session = await self._channels.connections.session(node_id, channel)
        except DlogError as refused:
            self._channels.warn_once(node_id, refused)
            return False
        self._incoming.begin()
        request = pb.WatchMetadataRequest(
            header=header(self._channels.identity, node_id), from_offset=self._incoming.next_offset
        )
        watch: UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            WATCH_METADATA, request_serializer=None, response_deserializer=None
        )
        life_ms = self._channels.randomness.between(*STREAM_LIFE_MS)
        data = request.SerializeToString()
        call: Any = watch(data, timeout=life_ms / 1000, metadata=session.metadata(WATCH_METADATA, data))
        self._call = call
        came = False
        try:
            async for data in call:
                came = self._take(data) or came
        except (AioRpcError, asyncio.CancelledError) as ended:
            self._raise_if_stopping()
            if isinstance(ended, AioRpcError) and ended.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self._channels.connections.forget_session(channel)
        except UnusableStreamError as reason:
            _log.info("the metadata of node %d is not taken: %s", node_id, reason)
            came = False
        finally:
            self._call = None
            call.cancel()
        return came

    @staticmethod
    def _raise_if_stopping() -> None:
        """A call that was cancelled and a task that is cancelled raise the same error."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

    def _take(self, data: bytes) -> bool:
        try:
            update = parse(pb.MetadataUpdate, data, MESSAGE_BYTES_MAX)
        except MalformedMessageError as garbage:
            raise UnusableStreamError(str(garbage)) from garbage
        if not self._incoming.take(update):
            return False
        self._on_batch()
        return True


class UnusableStreamError(Exception):
    """What a voter sends makes no sense to us, or is behind what we have."""


class Incoming:
    """Puts updates together and checks that they only go forward."""

    def __init__(self, sink: MetadataSink) -> None:
        self.next_offset = 0
        self._sink = sink
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._snapshot: tuple[int, int] | None = None
        """Offset and size of the one that is coming in."""

    def begin(self) -> None:
        """A new stream: what was left half done of the last one is dropped."""
        self._chunks, self._chunk_bytes, self._snapshot = [], 0, None

    def take(self, update: pb.MetadataUpdate) -> bool:
        """Returns whether the sink got something.  UnusableStreamError if the stream is of no use."""
        kind = update.WhichOneof("update")
        if kind == "snapshot":
            return self._take_chunk(update.snapshot)
        if self._snapshot is not None:
            raise UnusableStreamError("a snapshot is cut short")
        for entry in update.entries.entries:
            if entry.offset < self.next_offset:
                raise UnusableStreamError(f"offset {entry.offset} comes after {self.next_offset - 1}")
            self._sink.handle_entry(entry.payload, entry.offset)
            self.next_offset = entry.offset + 1
        return bool(update.entries.entries)

    def _take_chunk(self, chunk: pb.SnapshotChunk) -> bool:
        place = (chunk.offset, chunk.total_bytes)
        if self._snapshot is None:
            if chunk.total_bytes > SNAPSHOT_BYTES_MAX:
                raise UnusableStreamError(
                    f"a snapshot of {chunk.total_bytes} bytes is over the {SNAPSHOT_BYTES_MAX} allowed"
                )
            if chunk.offset < self.next_offset - 1:
                raise UnusableStreamError(
                    f"it lags: its snapshot ends at {chunk.offset}, we are at {self.next_offset - 1}"
                )
            self._snapshot = place
        elif self._snapshot != place:
            raise UnusableStreamError("pieces of two snapshots are mixed")
        self._chunks.append(chunk.data)
        self._chunk_bytes += len(chunk.data)
        if self._chunk_bytes > chunk.total_bytes or (not chunk.data and chunk.total_bytes):
            raise UnusableStreamError("the pieces of a snapshot do not fit its size")
        if self._chunk_bytes < chunk.total_bytes:
            return False
        data = b"".join(self._chunks)
        self.begin()
        self._sink.handle_snapshot(data, chunk.offset)
        self.next_offset = chunk.offset + 1
        return True
