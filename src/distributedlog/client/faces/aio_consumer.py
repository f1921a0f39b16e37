"""The consumer of programs on an asyncio loop: `distributedlog.aio.Consumer`.

`poll`, or iteration, does everything in turn: it joins the group, tells the callbacks, finds out where new
partitions begin, and gives out records.  In between only heartbeats go out, and fetches are under way, and
what is committed by itself: a coordinator that is away holds up no records.  What only members of groups
need is imported by those.

**Where a partition stands.**  `positions`: behind what was given out.  `safe`: behind what the program has
dealt with: everything that was given out before it asked for more.  Only `safe` is committed by itself, so
that a crash repeats records and never loses one.  `commit()` without offsets means `positions`: the
program has said so.

| event                    | what happens                                                                    |
|--------------------------|---------------------------------------------------------------------------------|
| partitions are given up  | `safe` is committed, then `on_revoked` is called, then they are dropped         |
| partitions were lost     | nothing can be committed; `on_lost`, or else `on_revoked`, is called            |
| partitions come          | `on_assigned`, which may seek; otherwise the committed offset, or the reset     |
| the program ends cleanly | what was given out is committed; after an error only what is safe               |

Memory is bounded by one response for each broker that is under way, and those that were not given out yet;
no more is fetched while there are any.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.consumer import Consumer as Assigned
from distributedlog.client.faces.bulk import table_of
from distributedlog.client.faces.commits import Commits
from distributedlog.client.faces.rebalance_listener import OnPartitions, RebalanceListener
from distributedlog.client.faces.records import ConsumerRecord, Pending, Prefetched, Taken
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ConsumerSettings,
    check_names,
    checked_most,
    client_options,
    fetch_options,
    group_options,
    reset_of,
)
from distributedlog.client.fetcher import Fetched
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import BEGINNING, END, AtTime
from distributedlog.client.offsets import resolve
from distributedlog.model.errors import (
    ClientClosedError,
    ConfigError,
    DlogError,
    GroupRebalancedError,
    InvalidRequestError,
    NoOffsetError,
)
from distributedlog.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from distributedlog.client.groups.members import Member
    from distributedlog.client.groups.membership import Change
    from distributedlog.client.transactions.manager import GroupMetadata

AUTO_COMMIT_INTERVAL_MS: Final = 5_000
POLL_RECORDS_MAX: Final = 500
STEP_MS_MAX: Final = 1_000
"""How long one wait for records is at most: then the group is looked after again."""


class Consumer:
    """Reads records.  Made and used on one loop, by one task at a time, with `async with`."""

    def __init__(self, bootstrap: str = BOOTSTRAP_DEFAULT, **settings: Unpack[ConsumerSettings]) -> None:
        check_names(settings, ConsumerSettings.__annotations__, "a consumer")
        self._group = group_options(settings)
        self._reset = reset_of(settings)
        self._poll_records_max = checked_most(settings.get("max_poll_records", POLL_RECORDS_MAX))
        self._commits_itself = settings.get("enable_auto_commit", True) and self._group is not None
        self._commit_interval_ms = settings.get("auto_commit_interval_ms", AUTO_COMMIT_INTERVAL_MS)
        addresses, options = parse_bootstrap(bootstrap), client_options(settings)
        self._cluster = Cluster(addresses, options)
        self._group_cluster = Cluster(addresses, options)
        self._commits = Commits(self._group_cluster, None if self._group is None else self._group.group_id)
        self._assigned = Assigned(
            self._cluster, fetch_options(settings), on_out_of_range=self._reset, tells_empty=True
        )
        self._assigned.on_truncated = self._on_truncated
        self._isolation = fetch_options(settings).isolation
        self._prefetched = Prefetched(settings.get("key_deserializer"), settings.get("value_deserializer"))
        if not self._prefetched.deserializes:
            self._assigned.make(ConsumerRecord)
        self._rows: list[Fetched] = []
        """What has come as rows and was not given out."""
        self._as_arrow: bool | None = None
        self._member: Member | None = None
        self._partitions: set[TopicPartition] = set()
        self._unresolved: set[TopicPartition] = set()
        """Partitions of which it is not known where to begin."""
        self._positions: dict[TopicPartition, int] = {}
        self._safe: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._begun: dict[TopicPartition, int] = {}
        """Where reading began last: by a commit, the reset or a seek."""
        self._pending = Pending()
        self._given: ConsumerRecord | None = None
        self._before: dict[TopicPartition, int] = {}
        """Where partitions stood before what was polled last."""
        self._commit_due_ms = self._cluster.clock.monotonic_ms() + self._commit_interval_ms
        self._listener = RebalanceListener()
        self._counts = {"records": 0, "commits": 0, "commits_failed": 0}
        self._is_closed = False
        self._joining: asyncio.Task[Change | None] | None = None
        self._changes: list[Change] = []
        """What a rebalance did and the program has not been told."""
        if "topics" in settings:
            self.subscribe(settings["topics"])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.settle()
        await self.close()

    # --- what to read --------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Reads these topics, or all whose whole names match a regular expression, shared with the group."""
        names = [topics] if isinstance(topics, str) else list(topics)
        if self._group is None:
            raise ConfigError("subscribing needs a group_id; without one, assign partitions")
        if bool(names) == (pattern is not None):
            raise ConfigError("subscribe to topics, or to a pattern")
        if self._member is None and self._partitions:
            raise InvalidRequestError("partitions were assigned: another consumer is needed to subscribe")
        self._listener = RebalanceListener(on_assigned, on_revoked, on_lost)
        if self._member is None:
            from distributedlog.client.groups.members import make_member

            self._member = make_member(self._group_cluster, self._group, names, pattern)
            self._member.on_attention = self._assigned.nudge
        else:
            self._member.subscribe(names, pattern)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions and no others, whatever the group's other members do."""
        if self._member is not None:
            raise InvalidRequestError(
                "the consumer has subscribed: another one is needed to assign partitions"
            )
        wanted = set(partitions)
        self._drop(self._partitions - wanted)
        self._unresolved |= wanted - self._partitions
        self._partitions |= wanted
        self._assigned.nudge()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives out nothing of these until they are resumed; the group keeps them here."""
        self._check_assigned(partitions)
        self._assigned.pause(partitions)
        for each in self._pending.part_with(partitions):
            self._counts["records"] -= len(each.records)
            self._prefetched.put_back(each)

    def resume(self, *partitions: TopicPartition) -> None:
        self._check_assigned(partitions)
        self._assigned.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._assigned.paused

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of the partition is the one at this offset, or the first one behind it."""
        self._check_assigned([partition])
        if offset < 0:
            raise InvalidRequestError(f"there is no offset {offset}")
        self._move({partition: offset})

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves these, or all, to their first record."""
        await self._seek_to(partitions, BEGINNING)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves these, or all, behind their last record."""
        await self._seek_to(partitions, END)

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Moves these, or all, to the first record of that time or later; to the end, if there is none."""
        await self._seek_to(partitions, AtTime(timestamp_ms))

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Moves these, or all, behind what was committed, or, before anything was, to where this consumer
        began: after an abort, to read the same again."""
        self._check_assigned(partitions)
        self._unresolved.update(partitions or self._partitions)
        await self._resolve()

    async def _seek_to(self, partitions: Collection[TopicPartition], place: AtTime) -> None:
        self._check_assigned(partitions)
        places = dict.fromkeys(partitions or self._partitions, place)
        self._move(await resolve(self._cluster, places, self._isolation))

    def _on_truncated(self, partition: TopicPartition, offset: int) -> None:
        """What was fetched and not given out may be of the log that is gone: it is fetched again."""
        self._go_to({partition: min(offset, self._positions.get(partition, offset))}, {})
        self._begun[partition] = min(offset, self._begun.get(partition, offset))

    def _move(
        self,
        offsets: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        self._begun.update(offsets)
        self._go_to(offsets, epochs)

    def _go_to(self, offsets: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        self._forget_fetched(offsets)
        self._unresolved -= offsets.keys()
        self._positions.update(offsets)
        self._safe.update(offsets)
        self._assigned.seek(offsets, epochs)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        for each in partitions:
            self._assigned.drop(each)
            for known in (self._positions, self._safe, self._committed, self._begun):
                known.pop(each, None)
        self._partitions.difference_update(partitions)
        self._unresolved.difference_update(partitions)
        self._forget_fetched(partitions)

    def _forget_fetched(self, partitions: Collection[TopicPartition]) -> None:
        self._prefetched.drop(partitions)
        self._rows = [each for each in self._rows if each.partition not in partitions]
        self._pending.part_with(partitions)
        if self._given is not None and TopicPartition(*self._given[:2]) in partitions:
            self._given = None

    def take_back(self) -> None:
        """What was given out last has not reached the program: it is given out again."""
        if self._given is not None:
            self._pending.records.append(self._given)
            self._given = None
            return
        offsets = {each: at for each, at in self._before.items() if each in self._partitions}
        self._go_to(offsets, {each: self._assigned.epoch_before(each, at) for each, at in offsets.items()})

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            if each not in self._partitions:
                raise InvalidRequestError(f"{each} is not assigned to this consumer")

    # --- reading -------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Returns records, or none after the timeout.  All that was given out before counts as dealt with."""
        self.settle()
        most = checked_most(max_records or self._poll_records_max)
        if self._pending.records:  # left by an iteration that was ended
            await self._maintain()
            found = self._pending.take(most)
            if found:
                self._stand_behind({TopicPartition(each[0], each[1]): each[2] + 1 for each in found})
                return found
        taken = await self._take(timeout_ms, most)
        self._stand_behind(taken.positions)
        return taken.records

    def poll_pending(self, max_records: int | None) -> list[ConsumerRecord]:
        """What `poll` gives, after `settle`, if it is at hand and nothing else is due; else nothing.  A poll
        from another thread may ask.  What an interrupt keeps from it `take_back` gives out again."""
        if self._pending.records or self._is_maintenance_due():
            return []
        self._before = self._positions.copy()
        taken = self._take_now(checked_most(max_records or self._poll_records_max))
        self._positions.update(taken.positions)
        return taken.records

    def _stand_behind(self, positions: Mapping[TopicPartition, int]) -> None:
        """What is given out by `poll` ends there."""
        self._before = {each: self._positions[each] for each in positions if each in self._positions}
        self._positions.update(positions)

    async def poll_arrow(self, timeout_ms: int = 1_000) -> "pyarrow.Table":
        """Returns records as rows, with no Python object for each, or no rows after the timeout: `topic`,
        `partition`, `offset`, `timestamp`, `key`, `value`, `headers`."""
        self.settle()
        self._read_as(arrow=True)
        clock = self._cluster.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            await self._maintain()
            paused = self._assigned.paused
            found = [each for each in self._rows if each.partition not in paused]
            left_ms = deadline_ms - clock.monotonic_ms()
            if any(each.rows is not None for each in found) or left_ms <= 0:
                self._rows = [each for each in self._rows if each.partition in paused]
                table = table_of(found)
                self._stand_behind({each.partition: each.next_offset for each in found})
                self._counts["records"] += table.num_rows
                return table
            if not self._is_turn_due():
                came = await self._assigned.poll(min(left_ms, STEP_MS_MAX))
                self._rows += came  # by now they may be others than before: a log was truncated

    def _read_as(self, *, arrow: bool) -> None:
        if self._as_arrow is None:
            self._as_arrow = arrow
            if arrow:
                self._assigned.make_rows()
        elif self._as_arrow is not arrow:
            raise InvalidRequestError("a consumer is polled for records or for Arrow, not for both")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; the one before it counts as dealt with."""
        while (record := self.next_pending()) is None:
            if self._pending.records:
                await self._maintain()
                continue
            taken = await self._take(STEP_MS_MAX, self._poll_records_max)
            self._pending.put(taken)
        return record

    def next_pending(self) -> ConsumerRecord | None:
        """The next record if it is at hand and nothing else is due.  Iteration from another thread may
        ask."""
        self.settle()
        pending = self._pending.records
        if not pending or self._is_maintenance_due():
            return None
        record = self._given = pending.pop()
        return record

    def settle(self) -> None:
        """The program asks for more: it has dealt with what it has."""
        self._before = {}
        given, self._given = self._given, None
        if given is None:
            self._safe.update(self._positions)
        else:
            partition = TopicPartition(given[0], given[1])
            self._positions[partition] = self._safe[partition] = given[2] + 1
        if not self._pending.records:
            passed = self._pending.passed()
            self._positions.update(passed)
            self._safe.update(passed)

    async def _take(self, timeout_ms: int, most: int) -> Taken:
        self._read_as(arrow=False)
        clock = self._cluster.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while True:
            await self._maintain()
            taken = self._take_now(most)
            if taken.records:
                return taken
            self._positions.update(taken.positions)  # behind markers, and what was aborted
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                return taken
            if self._is_turn_due():
                continue
            self._prefetched.add(await self._assigned.poll(min(left_ms, STEP_MS_MAX)))

    def _take_now(self, most: int) -> Taken:
        taken = self._prefetched.take(most, self._assigned.paused)
        self._counts["records"] += len(taken.records)
        return taken

    # --- looking after the group ---------------------------------------------------------------

    def _is_maintenance_due(self) -> bool:
        member = self._member
        if member is not None:
            member.polled()
        return self._is_turn_due() or bool(self._unresolved or self._changes) or self._is_commit_due()

    def _is_turn_due(self) -> bool:
        """Whether a rebalance goes on as soon as somebody polls."""
        if self._joining is not None:
            return self._joining.done()
        return self._member is not None and self._member.needs_attention

    def _is_commit_due(self) -> bool:
        """Nothing is committed while a join is under way: it would only be refused."""
        can_commit = self._commits_itself and self._joining is None and not self._commits.is_beside
        is_time = can_commit and self._cluster.clock.monotonic_ms() >= self._commit_due_ms
        return is_time and bool(self._uncommitted())

    async def _maintain(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        member = self._member
        if member is not None:
            member.polled()
            await member.look_around()
            await self._rebalance(member)
        elif not self._partitions:
            raise InvalidRequestError("nothing is assigned: subscribe to topics, or assign partitions")
        if self._unresolved:
            await self._resolve()
        if self._is_commit_due():
            self._commits.begin_beside(self._commit_by_itself(self._uncommitted()))

    async def _rebalance(self, member: "Member") -> None:
        """Takes a rebalance as far as it goes now.  Joining goes on between two polls; callbacks do not."""
        while member.needs_attention or self._joining is not None or self._changes:
            while self._changes:
                await self._on_change(self._changes[0])
                del self._changes[0]
            if self._joining is None:
                if not member.needs_attention:
                    return
                self._changes.append(member.prepare())
                await self._on_change(self._changes[0])
                del self._changes[0]
                self._joining = asyncio.create_task(member.join())
                self._joining.add_done_callback(lambda _: self._assigned.nudge())
            if not self._joining.done():
                return
            joined, self._joining = self._joining, None
            change = joined.result()
            if change is not None:
                self._changes.append(change)

    async def _on_change(self, change: "Change") -> None:
        if change.lost:
            await self._listener.tell_lost(change.lost)
            self._drop(change.lost)
        if change.revoked:
            await self._commits.take_over()
            if self._commits_itself:
                await self._commit_by_itself(self._uncommitted())
            await self._listener.tell_revoked(change.revoked)
            self._drop(change.revoked)
        if change.assigned:
            self._partitions.update(change.assigned)
            self._unresolved.update(change.assigned)
            await self._listener.tell_assigned(change.assigned)

    async def _resolve(self) -> None:
        """Finds out where partitions begin: behind what was committed, where they have begun before, or where
        the reset says."""
        wanted = set(self._unresolved)
        found_committed = await self._commits.fetch(wanted) if self._group is not None else {}
        committed = {each: at.offset for each, at in found_committed.items()}
        epochs = {each: at.leader_epoch for each, at in found_committed.items()}
        offsets = {each: self._begun[each] for each in wanted & self._begun.keys()} | committed
        without = wanted - offsets.keys()
        if without and self._reset is None:
            raise NoOffsetError(
                f"there is no committed offset for {', '.join(map(str, sorted(without)))}, and "
                "auto_offset_reset is none: seek, or commit an offset"
            )
        if without and self._reset is not None:
            places = dict.fromkeys(without, self._reset)
            offsets.update(await resolve(self._cluster, places, self._isolation))
        self._committed.update(committed)
        self._move({each: at for each, at in offsets.items() if each in self._unresolved}, epochs)

    # --- offsets -------------------------------------------------------------------------------

    def _uncommitted(self) -> dict[TopicPartition, int]:
        return {each: at for each, at in self._safe.items() if self._committed.get(each) != at}

    async def _commit_by_itself(self, due: Mapping[TopicPartition, int]) -> None:
        """Failures are no harm but to those who read again: the next commit says more."""
        self._commit_due_ms = self._cluster.clock.monotonic_ms() + self._commit_interval_ms
        if not due:
            return
        try:
            await self._commit(due)
        except DlogError:
            self._counts["commits_failed"] += 1

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits these offsets of next records, or those behind all that was given out.

        Raises `GroupRebalancedError` if the partitions may belong to another member by now.
        """
        await self.commit_dealt_with(self.dealt_with(offsets))

    def dealt_with(self, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        """What a commit is of that is asked for now.  It is safe from here on, also where that is less than
        before: what the program says is not taken back by what is committed by itself."""
        wanted = self.positions() if offsets is None else dict(offsets)
        self._safe.update((each, at) for each, at in wanted.items() if each in self._partitions)
        return wanted

    async def commit_dealt_with(self, offsets: Mapping[TopicPartition, int]) -> None:
        await self._commits.take_over()
        await self._commit(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._member is not None and any(each not in self._partitions for each in offsets):
            raise GroupRebalancedError("a partition is not assigned to this consumer any more")
        epochs = {each: self._assigned.epoch_before(each, at) for each, at in offsets.items()}
        await self._commits.commit(offsets, epochs, self._member)
        self._counts["commits"] += 1
        self._committed.update((each, at) for each, at in offsets.items() if each in self._partitions)

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """The committed offsets of these, or of all that are assigned, as far as there are any."""
        found = await self._commits.fetch(self._partitions if partitions is None else partitions)
        return {each: at.offset for each, at in found.items()}

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that is given out."""
        self._check_assigned([partition])
        if self._given is not None and TopicPartition(*self._given[:2]) == partition:
            return self._given.offset + 1
        if partition in self._unresolved:
            await self._resolve()
        return self._positions[partition]

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets behind all that was given out: what a transaction sends with `send_offsets`."""
        if self._given is not None:
            self._positions[TopicPartition(*self._given[:2])] = self._given.offset + 1
        return dict(self._positions)

    def group_metadata(self) -> "GroupMetadata":
        """Which member of the group this consumer is, for `send_offsets`."""
        if self._group is None:
            raise ConfigError("a consumer without a group_id has no group")
        from distributedlog.client.transactions.manager import GroupMetadata

        if self._member is None:
            return GroupMetadata(self._group.group_id)
        return GroupMetadata(self._group.group_id, *self._member.identity)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition still has before its end."""
        ends = await self.end_offsets(self._partitions)
        return {each: max(0, end - await self.position(each)) for each, end in ends.items()}

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await resolve(self._cluster, dict.fromkeys(partitions, BEGINNING), self._isolation)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await resolve(self._cluster, dict.fromkeys(partitions, END), self._isolation)

    def metrics(self) -> dict[str, int]:
        """Counts since the consumer was made, and how far it is behind what fetches have told."""
        rebalances = 0 if self._member is None else self._member.rebalances
        return {
            **self._counts,
            **self._assigned.metrics.figures(self._positions),
            "rebalances": rebalances,
            "truncations": self._assigned.truncations,
            "partitions": len(self._partitions),
        }

    # --- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Commits what is safe, once all commits that were asked for have ended, leaves the group and closes
        all connections."""
        if self._is_closed:
            return
        self._is_closed = True
        async with AsyncExitStack() as stack:  # the last one first, whatever becomes of another
            stack.push_async_callback(self._group_cluster.close)
            stack.push_async_callback(self._cluster.close)
            stack.push_async_callback(self._assigned.close)
            if self._member is not None:
                stack.push_async_callback(self._member.close)
            if self._joining is not None:
                self._joining.cancel()
                await asyncio.gather(self._joining, return_exceptions=True)
            await self._commits.take_over()
            await self._commits.ended()
            if self._commits_itself:
                await self._commit_by_itself(self._uncommitted())
            if self._member is not None and self._partitions:
                await self._listener.tell_revoked(tuple(sorted(self._partitions)))
