"""A node's replica of the metadata: committed entries of the metadata log, replayed into an image.

Every node has one: a controller's is fed by its own Raft driver, a plain broker's by watching a controller.
It only moves forward, so what it shows is always a prefix of the committed log.  Whoever must not answer
before a change can be seen here waits with `when_at`.

    handle_entry, handle_snapshot  ->  image
                                   ->  `publish`: to every listener, once per batch of entries
                                   ->  waiters whose offset is reached
                                   ->  watchers: the same entries, for brokers that follow us

Entries and snapshots are decoded when consensus asks whether they can be read, before they are accepted
(`check_entry`, `check_snapshot`); what was decoded is kept until it is applied, so that it is done once.

Entries are kept for watchers that are not far behind, up to a number of bytes; who is further behind gets the
image as a snapshot.  All of this is soft: a restart reads the log again.  One thread, the control loop's.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from distributedlog.control.contract import MetadataSink
from distributedlog.controller.bundles import decode_bundle
from distributedlog.controller.image import NO_OFFSET, MetadataImage
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.config import MIB
from distributedlog.model.errors import MalformedMessageError
from distributedlog.protocol.schema import Message

RECENT_BYTES_MAX = 4 * MIB
DECODED_BYTES_MAX = 4 * MIB
"""Bytes of entries that were decoded and wait to be committed; beyond them the oldest are decoded again."""

Published = Callable[[MetadataImage], None]


class MetadataReplica:
    def __init__(self, *, recent_bytes_max: int = RECENT_BYTES_MAX) -> None:
        self.image = MetadataImage()
        self._published = self.image
        self._listeners: list[Published] = []
        self._waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._next_waiter = 0
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        self._recent_bytes_max = recent_bytes_max
        self._recent_from = 0
        """Every entry from here on is among the recent ones."""
        self._watchers: dict[int, MetadataSink] = {}
        self._decoded: dict[bytes, list[Message]] = {}
        self._decoded_bytes = 0
        self._decoded_snapshot: tuple[bytes, MetadataImage] | None = None

    # --- what may come in ----------------------------------------------------------------------

    def check_entry(self, payload: bytes) -> None:
        """Raises what `handle_entry` would raise for bytes that are no records; keeps what it decoded."""
        if payload in self._decoded:
            return
        self._decoded[payload] = [message for message, _ in decode_bundle(payload)]
        self._decoded_bytes += len(payload)
        while self._decoded_bytes > DECODED_BYTES_MAX:
            oldest = next(iter(self._decoded))
            self._decoded_bytes -= len(oldest)
            del self._decoded[oldest]

    def check_snapshot(self, data: bytes, index: int, cluster_id: str) -> None:
        """Raises for bytes that are no image, or none of this cluster after the entry `index`; keeps for
        `handle_snapshot` the image that it decoded."""
        image = decode_snapshot(data)
        if image.offset >= index:
            raise MalformedMessageError(
                f"a snapshot up to entry {index} holds metadata of entry {image.offset + 1}"
            )
        if image.cluster_id not in ("", cluster_id):
            raise MalformedMessageError(f"a snapshot is of the cluster {image.cluster_id[:100]!r}")
        self._decoded_snapshot = data, image

    def _take_decoded(self, payload: bytes) -> list[Message]:
        messages = self._decoded.pop(payload, None)
        if messages is None:
            return [message for message, _ in decode_bundle(payload)]
        self._decoded_bytes -= len(payload)
        return messages

    # --- what comes in -------------------------------------------------------------------------

    def handle_entry(self, payload: bytes, offset: int) -> None:
        """Replays the next committed entry into the image.  One that was replayed already is passed over."""
        if offset <= self.image.offset:
            return
        self.image = self.image.apply(self._take_decoded(payload), offset)
        self._recent.append((offset, payload))
        self._recent_bytes += len(payload)
        while self._recent_bytes > self._recent_bytes_max:
            gone, dropped = self._recent.popleft()
            self._recent_from = gone + 1
            self._recent_bytes -= len(dropped)
        self._give(lambda watcher: watcher.handle_entry(payload, offset))

    def handle_snapshot(self, data: bytes, offset: int | None = None) -> None:
        """Takes over the whole state after an entry.  One that is older than what is here is skipped; after
        which entry it is, the snapshot says itself: `offset` is for other sinks."""
        checked, self._decoded_snapshot = self._decoded_snapshot, None
        image = checked[1] if checked is not None and checked[0] == data else decode_snapshot(data)
        if image.offset <= self.image.offset:
            return
        self.image = image
        self._recent.clear()
        self._recent_bytes = 0
        self._recent_from = image.offset + 1
        self._give(lambda watcher: watcher.handle_snapshot(data, image.offset))

    def _give(self, give: Callable[[MetadataSink], None]) -> None:
        for key in list(self._watchers):
            watcher = self._watchers.get(key)  # one may end another's watch
            if watcher is not None:
                give(watcher)

    def publish(self) -> None:
        """Tells everyone of what came in since the last time."""
        if self.image is self._published:
            return
        self._published = self.image
        for listener in self._listeners:
            listener(self.image)
        while self._waiters and self._waiters[0][0] <= self.image.offset:
            heappop(self._waiters)[2]()

    # --- who is told ---------------------------------------------------------------------------

    def on_publish(self, listener: Published) -> None:
        """It gets the present image now, and every one that is published later."""
        self._listeners.append(listener)
        listener(self._published)

    def when_at(self, offset: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once the entry at `offset` is published here, perhaps at once; returns how to cancel."""
        if offset <= self._published.offset or offset == NO_OFFSET:
            callback()
            return lambda: None
        self._next_waiter += 1
        waiter = (offset, self._next_waiter, callback)
        heappush(self._waiters, waiter)

        def cancel() -> None:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._waiters.sort()

        return cancel

    def watch(self, from_offset: int, sink: MetadataSink) -> Callable[[], None]:
        """Gives `sink` every entry from `from_offset` on, those to come included; returns how to end it."""
        if from_offset < self._recent_from or from_offset > self.image.offset + 1:
            # It lacks what we no longer have; or it claims more than was ever committed here, and must hear.
            if self.image.offset != NO_OFFSET:
                sink.handle_snapshot(encode_snapshot(self.image), self.image.offset)
        else:
            for offset, payload in list(self._recent):
                if offset >= from_offset:
                    sink.handle_entry(payload, offset)
        self._next_waiter += 1
        key = self._next_waiter
        self._watchers[key] = sink
        return lambda: void(self._watchers.pop(key, None))


def void(_: object) -> None:
    """Does nothing: the callback whose result nobody wants."""
