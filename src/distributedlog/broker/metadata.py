"""A node's replica of the metadata: committed entries of the metadata log, replayed into an image.

Every node has one: a controller's is fed by its own Raft driver, a plain broker's by watching a controller.
It only moves forward, so what it shows is always a prefix of the committed log.  Whoever must not answer
before a change can be seen here waits with `when_at`.

    entry, snapshot  ->  image  ->  `published`, to every listener, once per batch of entries
                                ->  waiters whose offset is reached
                                ->  watchers: the same entries, for brokers that follow us

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

RECENT_BYTES_MAX = 4 * MIB

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

    # --- what comes in -------------------------------------------------------------------------

    def entry(self, payload: bytes, offset: int) -> None:
        """The next committed entry.  One that was replayed already is passed over."""
        if offset <= self.image.offset:
            return
        self.image = self.image.apply([message for message, _ in decode_bundle(payload)], offset)
        self._recent.append((offset, payload))
        self._recent_bytes += len(payload)
        while self._recent_bytes > self._recent_bytes_max:
            gone, dropped = self._recent.popleft()
            self._recent_from = gone + 1
            self._recent_bytes -= len(dropped)
        self._give(lambda watcher: watcher.entry(payload, offset))

    def snapshot(self, data: bytes, offset: int) -> None:
        """The whole state after the entry at `offset`.  One that is older than what is here is skipped; how
        old it is it says itself."""
        image = decode_snapshot(data)
        if image.offset <= self.image.offset:
            return
        self.image = image
        self._recent.clear()
        self._recent_bytes = 0
        self._recent_from = image.offset + 1
        self._give(lambda watcher: watcher.snapshot(data, image.offset))

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
                sink.snapshot(encode_snapshot(self.image), self.image.offset)
        else:
            for offset, payload in list(self._recent):
                if offset >= from_offset:
                    sink.entry(payload, offset)
        self._next_waiter += 1
        key = self._next_waiter
        self._watchers[key] = sink
        return lambda: void(self._watchers.pop(key, None))


def void(_: object) -> None:
    """For a callback whose result nobody wants."""
