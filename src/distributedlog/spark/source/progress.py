"""How far a query has come, reported to a consumer group, so that lag is seen where people look for it.

Spark's checkpoint alone says where a query goes on: what is reported here is never read back, and if it
cannot be reported the query goes on without.  Spark says `commit(end)` only when it begins the next
micro-batch, so a query that has caught up would look one behind for as long as nothing comes: what
`latestOffset` is asked to start from has been worked through as well, and is reported when there is nothing
new.

It is reported by a thread with a connection of its own, beside the micro-batches: a coordinator that is away
holds one of them up for WAIT_S at most, and none of the next ones while it is still away.  Only the newest
positions wait to be reported; those in between are not missed by anybody.  `close` gives the last ones
CLOSE_S.

The first group of a cluster has its coordinator once `__consumer_offsets` is made, which takes longer than
that.  So the coordinator is looked for when a query begins to read, and is there when there is something to
report.

A thread that comes to an end by a failure that nobody thought of is followed by another one.

A group with members is not ours: its coordinator refuses, and that is said once.
"""

import contextlib
import threading
from typing import Final

from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.connections import ConnectedCluster
from distributedlog.spark.source.kafka_options import warn_once
from distributedlog.spark.source.offsets import Positions

TIMEOUT_MS: Final = 5_000
WAIT_S: Final = 0.2
"""Most often it is reported by then, and whoever asks next sees it."""
CLOSE_S: Final = 3.0
"""A query that runs once has nothing reported before its end."""


class Progress:
    """`report` and `close` are called by one thread."""

    def __init__(self, bootstrap: str, options: ClientOptions, group_id: str) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._group_id = group_id
        self._reported: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, OffsetAndMetadata] = {}
        self._is_reporting = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Has the coordinator looked for, beside the first micro-batch."""
        with self._changed:
            if self._group_id and not self._is_closed:
                self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dlog-progress", daemon=True)
            self._thread.start()

    def report(self, positions: Positions) -> None:
        """Everything before these has been worked through.  What was reported already is not repeated."""
        if not self._group_id:
            return
        with self._changed:
            news = {
                partition: OffsetAndMetadata(offset)
                for partition, offset in positions.offsets.items()
                if self._reported.get(partition) != offset
            }
            if not news or self._is_closed:
                return
            is_behind = self._is_reporting or bool(self._waiting)
            self._waiting = news
            self._changed.notify_all()
            self._start()
            if not is_behind:
                self._changed.wait_for(self._is_done, WAIT_S)

    def _is_done(self) -> bool:
        return not self._waiting and not self._is_reporting

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)

    # --- on the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._report_until_closed()
        except Exception as error:
            self._warn(error)
        finally:
            with self._changed:
                self._thread = None

    def _report_until_closed(self) -> None:
        connected = ConnectedCluster(self._bootstrap, self._options)
        try:
            group = GroupOffsets(connected.cluster, self._group_id)
            with contextlib.suppress(DlogError):  # it is said when there is something to report
                connected.run(group.fetch((), timeout_ms=TIMEOUT_MS))
            while news := self._next():
                self._commit(connected, group, news)
        finally:
            connected.close()

    def _next(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Nothing once it is closed and all is reported."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            news, self._waiting = self._waiting, {}
            self._is_reporting = bool(news)
            return news

    def _commit(
        self, connected: ConnectedCluster, group: GroupOffsets, news: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        reported: dict[TopicPartition, int] = {}
        try:
            connected.run(group.commit(news, timeout_ms=TIMEOUT_MS))
            reported = {partition: each.offset for partition, each in news.items()}
        except DlogError as error:
            self._warn(error)
        finally:
            with self._changed:
                self._reported.update(reported)
                self._is_reporting = False
                self._changed.notify_all()

    def _warn(self, error: Exception) -> None:
        warn_once(f"the progress of group {self._group_id!r} could not be committed: {error}")
