"""A member of a consumer group (KIP-848), over the network: does what the membership says.

All that is said goes out by one task, a heartbeat after the other: every interval that the coordinator names,
and at once where there is something to say.  Whoever polls only tells the program what changes, and then
says `told`.  A member that is not polled for `max_poll_interval_ms` leaves; the next poll joins again.

A commit carries the member's epoch.  One that the coordinator calls stale is on its way across an epoch that
has begun: it is sent again after the next heartbeat, as long as the member has what it commits for.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.errors import code_of, is_retriable
from distributedlog.client.groups.consumer_membership import ConsumerMembership, MemberState
from distributedlog.client.groups.membership import Change, GroupOptions
from distributedlog.client.metadata import Cluster
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, GroupRebalancedError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

LEAVE_TIMEOUT_MS: Final = 5_000
NO_MEMBER_ANY_MORE: Final = frozenset(
    {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
)


class ConsumerGroupMember:
    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Collection[str], pattern: str | None
    ) -> None:
        self.membership = ConsumerMembership(options, str(cluster.new_uuid()), topics, pattern=pattern)
        self.rebalances = 0
        self.on_attention: Callable[[], object] = lambda: None
        """Called when it is the turn of whoever polls."""
        self._cluster = cluster
        self._offsets = GroupOffsets(cluster, options.group_id)
        self._heartbeats: asyncio.Task[None] | None = None
        self._polled_ms = cluster.clock.monotonic_ms()
        self._news = asyncio.Event()
        """Set when a heartbeat is to go out before its time."""
        self._answered = asyncio.Event()
        """Set by the next heartbeat that has an outcome; then there is another event."""
        self._fenced = 0
        """How often in a row it was fenced before it got anywhere."""

    # --- the program's turn --------------------------------------------------------------------

    @property
    def identity(self) -> tuple[int, str, str | None]:
        return self.membership.identity

    @property
    def needs_attention(self) -> bool:
        has_ended = self._heartbeats is not None and self._heartbeats.done()
        return self.membership.needs_attention or has_ended

    def polled(self) -> None:
        """The program is alive."""
        self._polled_ms = self._cluster.clock.monotonic_ms()

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        self.membership.subscribe(topics, pattern=pattern)
        self._news.set()

    async def look_around(self) -> None:
        """The coordinator looks for topics and partitions."""

    def prepare(self) -> Change:
        """What the program is to be told.  Raises what the member was refused for."""
        if self._heartbeats is not None and self._heartbeats.done():
            ended, self._heartbeats = self._heartbeats, None
            ended.result()
        return self.membership.prepare()

    async def join(self) -> Change | None:
        """The program was told: a heartbeat says so."""
        if self.membership.state is MemberState.TELLING:
            self.rebalances += 1
        self.membership.told()
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._beat())
        self._news.set()
        return None

    # --- heartbeats ----------------------------------------------------------------------------

    async def _beat(self) -> None:
        member = self.membership
        while True:
            await self._until_due()
            if not member.is_beating:
                continue
            late_ms = self._cluster.clock.monotonic_ms() - self._polled_ms
            if late_ms > member.options.max_poll_interval_ms:
                await self._leave()
                member.poll_expired()
            else:
                await self._talk()
            self._answered.set()
            self._answered = asyncio.Event()
            if member.needs_attention:
                self.on_attention()

    async def _until_due(self) -> None:
        """Waits for the interval, or until there is something to say."""
        member = self.membership
        if self._fenced > 1:
            await asyncio.sleep(self._cluster.pause_ms(self._fenced) / 1000)
        wait_ms = self._cluster.pause_ms(1) if member.unnamed else member.heartbeat_interval_ms
        if not member.is_heartbeat_due:
            try:
                async with asyncio.timeout(wait_ms / 1000 if member.is_beating else None):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._news.clear()

    async def _talk(self) -> None:
        """One heartbeat, with all its retries."""
        member = self.membership
        try:
            await self._cluster.retrying(self._heartbeat, is_worth_waiting=is_retriable)
        except DlogError as error:
            if not is_retriable(error) or member.state is MemberState.JOINING:
                member.refused(error)
        self._fenced = self._fenced + 1 if member.state is MemberState.FENCED else 0

    async def _heartbeat(self) -> None:
        member = self.membership
        try:
            connection = await self._offsets.coordinator()
            try:
                version = connection.version_for(ConsumerGroupHeartbeatRequest)
            except UnsupportedVersionError as error:
                raise UnsupportedVersionError(f"{error}: use group_protocol='classic'") from error
            member.check_version(version)
            heartbeat = member.heartbeat()
            response = await self._cluster.call(connection, heartbeat.request, ConsumerGroupHeartbeatResponse)
            member.accept(heartbeat, response)
        except DlogError:
            member.missed()
            self._offsets.forget_coordinator()
            raise
        if member.unnamed:
            member.learn(await self._cluster.names_of(member.unnamed))

    # --- offsets -------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises `GroupRebalancedError` if the member has lost what it commits for."""
        clock, member = self._cluster.clock, self.membership
        deadline_ms = clock.monotonic_ms() + self._cluster.options.call_timeout_ms
        while True:
            identity, answered = self.identity, self._answered
            try:
                await self._offsets.commit(offsets, member=identity)
                return
            except DlogError as error:
                if code_of(error) not in NO_MEMBER_ANY_MORE:
                    raise
                is_stale = code_of(error) is ErrorCode.STALE_MEMBER_EPOCH and member.is_beating
                has_time = clock.monotonic_ms() < deadline_ms
                if not (is_stale and has_time and offsets.keys() <= set(member.held)):
                    raise GroupRebalancedError(
                        f"the group {member.options.group_id!r} was rebalanced before the commit: its "
                        "records will be read again, by this member or by another; poll again to go on"
                    ) from error
            if identity == self.identity:
                self._news.set()
                left_ms = max(0, deadline_ms - clock.monotonic_ms())
                try:
                    async with asyncio.timeout(left_ms / 1000):
                        await answered.wait()
                except TimeoutError:
                    continue

    # --- leaving -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leaves; a static member for a while."""
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.membership.is_beating:
            await self._leave()
        self.membership.left()

    async def _leave(self) -> None:
        """A farewell that does not arrive is no harm: the session ends by itself."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                connection = await self._offsets.coordinator()
                request = self.membership.leave_request()
                await self._cluster.call(connection, request, ConsumerGroupHeartbeatResponse)
        except (DlogError, TimeoutError):
            self._offsets.forget_coordinator()
