"""How far a query has come, told to a consumer group, so that lag is seen where people look for it.

Spark's checkpoint alone says where a query goes on: what is told here is never read back, and if it cannot be
told the query goes on without.  Spark says `commit(end)` only when it begins the next micro-batch, so a query
that has caught up would look one behind for as long as nothing comes: what `latestOffset` is asked to start
from has been worked through as well, and is told when there is nothing new.

It is told by a thread with a connection of its own, beside the micro-batches: a coordinator that is away
holds one of them up for WAIT_S at most, and none of the next ones while it is still away.  Only the newest
positions wait to be told; those in between are not missed by anybody.  `close` gives the last ones CLOSE_S.

A thread that comes to an end by a failure that nobody thought of is followed by another one.

A group with members is not ours: its coordinator refuses, and that is said once.
"""

import threading
from typing import Final

from distributedlog.client.group_offsets import GroupOffsets, Position
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.spark.connections import Link
from distributedlog.spark.kafka_options import warn_once
from distributedlog.spark.offsets import Positions

TIMEOUT_MS: Final = 5_000
WAIT_S: Final = 0.2
"""Most often it is told by then, and whoever asks next sees it."""
CLOSE_S: Final = 1.0


class Progress:
    """`tell` and `close` are called by one thread."""

    def __init__(self, bootstrap: str, options: ClientOptions, group_id: str) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._group_id = group_id
        self._told: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, Position] = {}
        self._is_telling = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def tell(self, positions: Positions) -> None:
        """Everything before these has been worked through.  What was told already is not told again."""
        if not self._group_id:
            return
        with self._changed:
            news = {
                partition: Position(offset)
                for partition, offset in positions.offsets.items()
                if self._told.get(partition) != offset
            }
            if not news or self._is_closed:
                return
            is_behind = self._is_telling
            self._waiting = news
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dlog-progress", daemon=True)
                self._thread.start()
            if not is_behind:
                self._changed.wait_for(self._is_done, WAIT_S)

    def _is_done(self) -> bool:
        return not self._waiting and not self._is_telling

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
            self._tell_until_closed()
        except Exception as error:
            self._complain(error)
        finally:
            with self._changed:
                self._thread = None

    def _tell_until_closed(self) -> None:
        link = Link(self._bootstrap, self._options)
        try:
            group = GroupOffsets(link.cluster, self._group_id)
            while news := self._next():
                self._commit(link, group, news)
        finally:
            link.close()

    def _next(self) -> dict[TopicPartition, Position]:
        """Nothing once it is closed and all is told."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            news, self._waiting = self._waiting, {}
            self._is_telling = bool(news)
            return news

    def _commit(self, link: Link, group: GroupOffsets, news: dict[TopicPartition, Position]) -> None:
        told: dict[TopicPartition, int] = {}
        try:
            link.run(group.commit(news, timeout_ms=TIMEOUT_MS))
            told = {partition: each.offset for partition, each in news.items()}
        except DlogError as error:
            self._complain(error)
        finally:
            with self._changed:
                self._told.update(told)
                self._is_telling = False
                self._changed.notify_all()

    def _complain(self, error: Exception) -> None:
        warn_once(f"the progress of group {self._group_id!r} could not be told: {error}")
