"""What a node answers on the control port: the services of raft.proto and controller.proto.

Every call has to be in a session (`sessions`): who calls has proved that it holds the cluster's secret, and
is taken at its word for no other node.  Messages of consensus are taken only from nodes that this one knows
as voters.

Requests arrive as bytes and are parsed here, after their size was checked.  A request to the controller is
always answered by a reply, errors included: only the network leaves anything open.  Streams are refused by
a status, because there is nothing yet whose outcome could be doubted.

A watcher of the metadata gets it through a queue of bounded bytes.  When the queue is full the source is let
go, and taken up again behind the last entry queued once there is room: a watcher far behind costs no more
memory than one that keeps up.  One that does not read at all is cut off after WRITE_TIMEOUT_S.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import grpc
from grpc.aio import ServicerContext

from distributedlog.control._generated import common_pb2, raft_pb2
from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.contract import ControllerReply, ControllerService, Identity, MetadataSource
from distributedlog.control.conversion.envelope import (
    check_header,
    decode_request,
    encode_failure,
    encode_reply,
    parse,
)
from distributedlog.control.credentials import EXCHANGE, SUBMIT, WATCH_METADATA
from distributedlog.control.options import MESSAGE_BYTES_MAX
from distributedlog.control.sessions import RefusedError, Session, Sessions, UnprovenCaller
from distributedlog.controller.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionsRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
    RegisterControllerRequest,
    Request,
)
from distributedlog.model.errors import (
    ClusterAuthorizationError,
    DlogError,
    MalformedMessageError,
    NotLeaderError,
    UnsupportedVersionError,
)
from distributedlog.ports.executor import Outcome
from distributedlog.ports.transport import Receive

SUBMIT_TIMEOUT_MS_MAX: Final = 600_000
WATCH_REQUEST_BYTES_MAX: Final = 64 * 1024
QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024
UPDATE_BYTES: Final = 1024 * 1024
"""Entries are gathered up to this, and snapshots cut into pieces of it."""
WRITE_TIMEOUT_S: Final = 10.0
WATCHES_MAX: Final = 256
"""The watches at a time."""

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
NOT_ITS_OWN: Final = "not its own"
_OF_A_BROKER: Final = (
    AllocateProducerIdsRequest,
    AlterPartitionsRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
)

_log = logging.getLogger(__name__)


async def refuse(context: "ServicerContext[Any, Any]", error: DlogError) -> None:
    """Ends a stream that is not to begin."""
    status = grpc.StatusCode.FAILED_PRECONDITION
    if isinstance(error, UnsupportedVersionError):
        status = grpc.StatusCode.UNIMPLEMENTED
    elif isinstance(error, MalformedMessageError):
        status = grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(status, str(error))


def check_sender(header: common_pb2.Header, session: Session) -> None:
    session.claim(header.sender_id)
    if header.sender_id != session.node_id:
        raise RefusedError(
            NOT_ITS_OWN, f"node {session.node_id} speaks in the name of node {header.sender_id}"
        )


def check_own(request: Request, session: Session) -> None:
    """A broker registers, lives and leads under no other id than its own; a controller registers so too."""
    if isinstance(request, RegisterControllerRequest):
        claimed = request.registration.controller_id
        if claimed != session.node_id or CONTROLLER not in session.roles:
            raise RefusedError(
                NOT_ITS_OWN,
                f"node {session.node_id}, in the roles {','.join(sorted(session.roles))}, registers as "
                f"controller {claimed}",
            )
    if isinstance(request, _OF_A_BROKER) and (
        request.broker_id != session.node_id or BROKER not in session.roles
    ):
        raise RefusedError(
            NOT_ITS_OWN,
            f"node {session.node_id}, in the roles {','.join(sorted(session.roles))}, asks as broker "
            f"{request.broker_id}",
        )


# --- raft --------------------------------------------------------------------------------------


class RaftService:
    def __init__(
        self, identity: Identity, sessions: Sessions, is_voter: Callable[[int], bool], receive: Receive
    ) -> None:
        self._identity = identity
        self._sessions = sessions
        self._is_voter = is_voter
        self._receive = receive
        self._streams: set[asyncio.Task[None]] = set()
        self._closed = False

    def handler(self) -> grpc.GenericRpcHandler:
        exchange: grpc.RpcMethodHandler[Any, Any] = grpc.stream_unary_rpc_method_handler(self.exchange)
        return grpc.method_handlers_generic_handler("dlog.v1.Raft", {"Exchange": exchange})

    async def exchange(self, frames: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> bytes:
        try:
            session = self._sessions.require(context, EXCHANGE)
            if not isinstance(session, UnprovenCaller):
                self._check_voter(session)
        except RefusedError as error:
            await self._sessions.refuse(context, error)
            raise
        if not self._closed:
            reading = asyncio.get_running_loop().create_task(self._read(frames, session))
            self._streams.add(reading)
            try:
                await asyncio.wait({reading})
                if not reading.cancelled():
                    reading.result()
            except DlogError as error:
                self._sessions.report_refusal(context, error)
                await refuse(context, error)
            finally:
                reading.cancel()
                self._streams.discard(reading)
        return raft_pb2.RaftClosed().SerializeToString()

    def _check_voter(self, session: Session) -> None:
        if CONTROLLER not in session.roles:
            raise RefusedError(NOT_ITS_OWN, f"node {session.node_id} is no controller")
        if not self._is_voter(session.node_id):
            raise RefusedError(
                NOT_ITS_OWN,
                f"node {session.node_id} is no voter that node {self._identity.node_id} knows of: see "
                "controller.quorum.voters of both, and whether one of them lost its disk and founded a "
                "second cluster",
            )

    async def _read(self, frames: AsyncIterator[bytes], session: Session) -> None:
        sender: int | None = None
        async for data in frames:
            frame = parse(raft_pb2.RaftFrame, data, MESSAGE_BYTES_MAX)
            kind = frame.WhichOneof("frame")
            if sender is None:
                check_header(frame.hello, self._identity)
                check_sender(frame.hello, session)
                self._check_voter(session)
                sender = session.node_id
            elif kind == "message":
                self._receive(sender, frame.message)
            elif kind == "hello":
                raise MalformedMessageError("a second hello in one stream")

    def close(self) -> None:
        """Ends the streams: they would keep a server from stopping before its grace is over."""
        self._closed = True
        for reading in self._streams:
            reading.cancel()


# --- controller --------------------------------------------------------------------------------


class ControllerServicer:
    """The gRPC service in front of a ControllerService and a MetadataSource, which a node that is no voter
    may lack."""

    def __init__(
        self,
        identity: Identity,
        sessions: Sessions,
        controller: ControllerService | None,
        metadata: MetadataSource | None,
    ) -> None:
        self._identity = identity
        self._sessions = sessions
        self._controller = controller
        self._metadata = metadata
        self._feeds: set[MetadataFeed] = set()
        self._closed = False

    def handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Submit": grpc.unary_unary_rpc_method_handler(self.submit),
            "WatchMetadata": grpc.unary_stream_rpc_method_handler(self.watch_metadata),
        }
        return grpc.method_handlers_generic_handler("dlog.v1.Controller", methods)

    async def submit(self, data: bytes, context: "ServicerContext[bytes, bytes]") -> bytes:
        remaining_s = context.time_remaining()
        timeout_ms = SUBMIT_TIMEOUT_MS_MAX
        if remaining_s is not None:
            timeout_ms = max(0, min(int(remaining_s * 1000), SUBMIT_TIMEOUT_MS_MAX))
        try:
            session = self._sessions.require(context, SUBMIT, data)
        except RefusedError as error:
            await self._sessions.refuse(context, error)
            raise
        try:
            sender, request = decode_request(data, self._identity)
            check_sender(sender, session)
            check_own(request, session)
            if self._controller is None:
                raise NotLeaderError(f"node {self._identity.node_id} is no controller")
            answered: asyncio.Future[Outcome[ControllerReply]] = asyncio.get_running_loop().create_future()

            def done(outcome: Outcome[ControllerReply]) -> None:
                if not answered.done():  # the caller may have gone: what it asked for goes on
                    answered.set_result(outcome)

            self._controller.submit(request, timeout_ms, done)
            return encode_reply((await answered).value())
        except RefusedError as error:
            self._sessions.report_refusal(context, error)
            return encode_failure(ClusterAuthorizationError(str(error)))
        except DlogError as error:
            return encode_failure(error)
        except Exception as defect:
            _log.exception("a request to the controller failed")
            return encode_failure(defect)

    async def watch_metadata(self, data: bytes, context: "ServicerContext[bytes, bytes]") -> None:
        try:
            session = self._sessions.require(context, WATCH_METADATA, data)
            request = parse(pb.WatchMetadataRequest, data, WATCH_REQUEST_BYTES_MAX)
            check_header(request.header, self._identity)
            check_sender(request.header, session)
            if self._metadata is None:
                raise NotLeaderError(f"node {self._identity.node_id} has no metadata to give")
            if request.from_offset < 0:
                raise MalformedMessageError(f"there is no offset {request.from_offset}")
        except RefusedError as error:
            await self._sessions.refuse(context, error)
            return
        except DlogError as error:
            await refuse(context, error)
            return
        if len(self._feeds) >= WATCHES_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHES_MAX} nodes watch already")
        feed = MetadataFeed(self._metadata, request.from_offset)
        self._feeds.add(feed)
        try:
            if not self._closed and not await _write_all(feed, context):
                feed.close()  # first: the status waits behind what is not read, for as long as the call lives
                slow = f"an update was not read within {WRITE_TIMEOUT_S:g} s"
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, slow)
        finally:
            feed.close()
            self._feeds.discard(feed)

    def close(self) -> None:
        """Ends the watches; requests under way are still answered."""
        self._closed = True
        for feed in list(self._feeds):
            feed.close()


async def _write_all(feed: "MetadataFeed", context: "ServicerContext[bytes, bytes]") -> bool:
    """Writes until the feed is closed; False: the watcher does not read."""
    while await feed.wait():
        for update in feed.take():
            writing = asyncio.ensure_future(context.write(update.SerializeToString()))
            try:
                await asyncio.wait({writing}, timeout=WRITE_TIMEOUT_S)
                if not writing.done():
                    return False
                writing.result()
            finally:
                writing.cancel()
    return True


class MetadataFeed:
    """A queue of bounded bytes between a source that pushes and a stream that drains."""

    def __init__(self, source: MetadataSource, from_offset: int, *, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        self._source = source
        self._next_offset = from_offset
        self._bytes_max = bytes_max
        self._entries: deque[tuple[int, bytes]] = deque()
        self._snapshot: tuple[int, bytes] | None = None
        """Comes before the entries, and replaces those that came before it."""
        self._bytes = 0
        self._full = False
        self._filled = asyncio.Event()
        self._closed = False
        self._cancel: Callable[[], None] | None = None
        self._watch()

    # --- from the source -----------------------------------------------------------------------

    def _watch(self) -> None:
        """Watches the source: what it pushes within `watch` may fill the queue before there is a way to
        cancel."""
        self._full = False
        cancel = self._source.watch(self._next_offset, self)
        if self._full:
            cancel()
        else:
            self._cancel = cancel

    def handle_snapshot(self, data: bytes, offset: int) -> None:
        if self._closed or self._full:
            return
        self._entries.clear()
        self._snapshot = offset, data
        self._bytes = len(data)
        self._queued(offset)

    def handle_entry(self, payload: bytes, offset: int) -> None:
        if self._closed or self._full or offset < self._next_offset:
            return
        self._entries.append((offset, payload))
        self._bytes += len(payload)
        self._queued(offset)

    def _queued(self, offset: int) -> None:
        self._next_offset = offset + 1
        self._filled.set()
        if self._bytes >= self._bytes_max:
            self._full = True
            self._let_go()

    def _let_go(self) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()

    # --- to the stream -------------------------------------------------------------------------

    async def wait(self) -> bool:
        """Waits until there is something to take; False: never again."""
        while not self._closed and self._snapshot is None and not self._entries:
            if self._full:
                self._watch()
                continue
            self._filled.clear()
            await self._filled.wait()
        return not self._closed

    def take(self) -> Iterator[pb.MetadataUpdate]:
        """Empties the queue, piece by piece."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            offset, data = snapshot
            self._bytes -= len(data)
            for start in range(0, max(1, len(data)), UPDATE_BYTES):
                chunk = data[start : start + UPDATE_BYTES]
                yield pb.MetadataUpdate(
                    snapshot=pb.SnapshotChunk(offset=offset, total_bytes=len(data), data=chunk)
                )
        if self._entries and self._snapshot is None:
            yield pb.MetadataUpdate(entries=pb.MetadataEntries(entries=self._gathered()))

    def _gathered(self) -> list[pb.MetadataEntry]:
        gathered: list[pb.MetadataEntry] = []
        gathered_bytes = 0
        while self._entries and (not gathered or gathered_bytes + len(self._entries[0][1]) <= UPDATE_BYTES):
            offset, payload = self._entries.popleft()
            gathered.append(pb.MetadataEntry(offset=offset, payload=payload))
            gathered_bytes += len(payload)
        self._bytes -= gathered_bytes
        return gathered

    def close(self) -> None:
        self._closed = True
        self._full = True
        self._let_go()
        self._filled.set()
