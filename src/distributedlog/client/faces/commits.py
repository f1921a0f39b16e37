"""The committed offsets of a consumer's group: asked for, and stored, over connections of the group's own."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition

if TYPE_CHECKING:
    from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
    from distributedlog.client.groups.members import Member


class Commits:
    """`group_id` is None where there is no group: then nothing can be committed."""

    def __init__(self, cluster: Cluster, group_id: str | None) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._under_way: set[asyncio.Task[object]] = set()
        self._beside: asyncio.Task[None] | None = None

    def _offsets(self, why: str) -> "GroupOffsets":
        if self._group_id is None:
            raise ConfigError(why)
        from distributedlog.client.admin.group_offsets import GroupOffsets

        return GroupOffsets(self._cluster, self._group_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
        member: "Member | None",
    ) -> None:
        """Commits next offsets, with the epochs of the records before them; for a member, if there is one."""
        group = self._offsets("committing needs a group_id")
        from distributedlog.client.admin.group_offsets import OffsetAndMetadata

        wanted = {each: OffsetAndMetadata(at, epochs[each]) for each, at in offsets.items()}
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await (group if member is None else member).commit(wanted)
        finally:
            self._under_way.discard(task)

    async def fetch(self, wanted: Collection[TopicPartition]) -> "dict[TopicPartition, OffsetAndMetadata]":
        group = self._offsets("committed offsets are those of a group: group_id is missing")
        return await group.fetch(wanted, require_stable=True) if wanted else {}

    def begin_beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Commits while records are given out, however long that takes.  There is one such at a time."""
        self._beside = asyncio.create_task(work)

    @property
    def is_beside(self) -> bool:
        return self._beside is not None and not self._beside.done()

    async def take_over(self) -> None:
        """Gives up what goes on beside: what is committed next says more, and comes behind it."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)

    async def ended(self) -> None:
        """Waits until none is under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)
