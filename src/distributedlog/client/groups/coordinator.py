"""A member of a group, over the network: does what the membership says.

A rebalance is `prepare`, callbacks, `join`, and callbacks again.  All but the joining itself is done by
whoever polls, so that partitions are given up only where the records are handled.  Heartbeats are a
task of their own, which begins with the first assignment.  A member that is not polled for
`max_poll_interval_ms` leaves, so that others get its partitions; the next poll joins again.

The group has connections of its own: a join may wait for minutes, and nothing may wait behind it.  A
coordinator that is lost is looked for again; its answers decide, not the silence in between.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.connection import Connection
from distributedlog.client.errors import code_of, is_retriable
from distributedlog.client.groups.membership import Change, GroupOptions, Lead, Membership, State
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, GroupRebalancedError, InvalidRegularExpressionError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.heartbeat import HeartbeatResponse
from distributedlog.protocol.messages.join_group import JoinGroupResponse
from distributedlog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from distributedlog.protocol.messages.sync_group import SyncGroupResponse

LEAVE_TIMEOUT_MS: Final = 5_000
MEMBERSHIP_ERRORS: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)


class GroupMember:
    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Collection[str], pattern: str | None
    ) -> None:
        self.membership = membership = Membership(options, topics)
        self._pattern = _compiled(pattern)
        self._look_due_ms = 0
        self._cluster = cluster
        self._offsets = GroupOffsets(cluster, membership.options.group_id)
        self._heartbeats: asyncio.Task[None] | None = None
        self._failure: DlogError | None = None
        self._polled_ms = cluster.clock.monotonic_ms()
        self.rebalances = 0
        self.on_attention: Callable[[], object] = lambda: None
        """Called when the membership wants something of whoever polls."""
        self._topics_led: frozenset[str] = frozenset()
        self._counts: dict[str, int] | None = None
        """The partitions of each topic that was there when this member last assigned them; None if it does
        not lead."""

    @property
    def identity(self) -> tuple[int, str, str | None]:
        return self.membership.identity

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        self._pattern = _compiled(pattern)
        self._look_due_ms = 0
        if topics:
            self.membership.subscribe(topics)

    # --- joining -------------------------------------------------------------------------------

    @property
    def needs_attention(self) -> bool:
        return self.membership.must_join or self._failure is not None

    def polled(self) -> None:
        """The program is alive."""
        self._polled_ms = self._cluster.clock.monotonic_ms()

    def prepare(self) -> Change:
        """Begins a rebalance: what has to be given up before the member joins.  Raises what a heartbeat
        met that is no matter of time."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return self.membership.prepare()

    async def join(self) -> Change | None:
        """Makes the member stable; None if that takes another rebalance.  Nothing of the program is
        called."""
        self.membership.must_join = False
        try:
            change = await self._cluster.retrying(self._join, is_worth_waiting=is_retriable)
        except BaseException:
            self.membership.must_join = True
            raise
        if change is not None:
            self.rebalances += 1
            if self._heartbeats is None:
                self._heartbeats = asyncio.create_task(self._beat())
        return change

    async def _join(self) -> Change | None:
        """One try; None if the member has to join once more."""
        connection: Connection | None = None
        try:
            connection = await self._offsets.coordinator()
            wait_ms = self.membership.options.max_poll_interval_ms
            request = self.membership.join_request()
            response = await self._cluster.call(connection, request, JoinGroupResponse, wait_ms)
            joined = self.membership.accept_join(response)
            if joined is False:
                self.membership.must_join = True
                return None
            self._counts = None
            assignments = await self._assign(joined) if isinstance(joined, Lead) else None
            sync = self.membership.sync_request(assignments)
            change = self.membership.accept_sync(
                await self._cluster.call(connection, sync, SyncGroupResponse, wait_ms)
            )
            if change is None:
                self.membership.must_join = True
            return change
        except asyncio.CancelledError:
            if connection is not None:  # a farewell on it would wait behind the join that is still open
                connection.close()
            raise
        except DlogError:
            self._offsets.forget_coordinator()
            raise

    async def _assign(self, lead: Lead) -> Mapping[str, list[TopicPartition]]:
        self._topics_led = frozenset(lead.topics)
        counts = self._counts = await self._partition_counts(lead.topics)
        return lead.assignor.assign(counts, lead.members)

    async def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        if not topics:
            return {}
        view = await self._cluster.refresh(topics)
        return {
            name: len(view.topics[name].partitions)
            for name in topics
            if name in view.topics and view.topics[name].error is ErrorCode.NONE
        }

    async def look_around(self) -> None:
        """Looks now and then for topics that match the pattern, and for partitions that were added."""
        now_ms = self._cluster.clock.monotonic_ms()
        if now_ms < self._look_due_ms:
            return
        if self._pattern is not None:
            view = await self._cluster.retrying(lambda: self._cluster.refresh(None))
            found = [each.name for each in view.topics.values() if not each.is_internal]
            self.membership.subscribe([each for each in found if self._pattern.fullmatch(each)])
        if self._look_due_ms:
            await self._cluster.retrying(self._look_for_new_partitions)
        self._look_due_ms = now_ms + self._cluster.options.metadata_age_ms_max

    async def _look_for_new_partitions(self) -> None:
        """A leader that finds other numbers of partitions than it has assigned asks for a rebalance."""
        assigned = self._counts
        if assigned is None:
            return
        found = await self._partition_counts(self._topics_led)
        if found != assigned and self._counts is assigned:
            self.membership.must_join = True

    # --- being a member ------------------------------------------------------------------------

    async def _beat(self) -> None:
        options = self.membership.options
        while True:
            await asyncio.sleep(options.heartbeat_interval_ms / 1000)
            if self.membership.state is not State.STABLE:
                continue
            if self._cluster.clock.monotonic_ms() - self._polled_ms > options.max_poll_interval_ms:
                await self._leave("the program did not poll within max_poll_interval_ms")
                self.membership.left()
                continue
            try:
                await self._heartbeat()
            except DlogError as error:
                self._offsets.forget_coordinator()
                if not is_retriable(error):
                    self._failure = error
            if self.needs_attention:
                self.on_attention()

    async def _heartbeat(self) -> None:
        connection = await self._offsets.coordinator()
        generation = self.membership.generation
        request = self.membership.heartbeat_request()
        response = await self._cluster.call(connection, request, HeartbeatResponse)
        if generation == self.membership.generation and self.membership.state is State.STABLE:
            self.membership.accept_error(response.error_code, f"group {self.membership.options.group_id!r}")

    # --- offsets -------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises `GroupRebalancedError` if the member has lost what it commits for."""
        identity = self.membership.identity
        try:
            await self._offsets.commit(offsets, member=identity)
        except DlogError as error:
            code = code_of(error)
            if code not in MEMBERSHIP_ERRORS:
                raise
            if identity == self.membership.identity and self.membership.state is State.STABLE:
                self.membership.accept_error(code, "the commit")
            raise GroupRebalancedError(
                f"the group {self.membership.options.group_id!r} was rebalanced before the commit: its "
                "records will be read again, by this member or by another; poll again to go on"
            ) from error

    async def committed(
        self, partitions: "set[TopicPartition] | frozenset[TopicPartition]"
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._offsets.fetch(partitions, require_stable=True)

    # --- leaving -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leaves, unless it is a static member, which may be back soon."""
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.membership.member_id:
            await self._leave("the consumer was closed")
        self.membership.left()

    async def _leave(self, reason: str) -> None:
        """A farewell that does not arrive is no harm: the session ends by itself."""
        if self.membership.options.instance_id is not None:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                connection = await self._offsets.coordinator()
                version = connection.version_for(LeaveGroupRequest)
                request = self.membership.leave_request(version, reason)
                await self._cluster.call(connection, request, LeaveGroupResponse)
        except (DlogError, TimeoutError):
            self._offsets.forget_coordinator()


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise InvalidRegularExpressionError(f"{pattern!r} is no regular expression: {error}") from error
