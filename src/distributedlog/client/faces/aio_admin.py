"""Administration for programs on an asyncio loop: `distributedlog.aio.Admin`.

`Admin` of `client/admin`, made from a bootstrap list and settings, with what there is about groups beside it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Unpack

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.admin import Admin as Core
from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.admin.groups import GroupAdmin, GroupListing, GroupView
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ClientSettings,
    check_names,
    client_options,
)
from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition


class Admin(Core):
    """Administers a cluster; connects when it is first used.  To be used with `async with`."""

    def __init__(self, bootstrap: str = BOOTSTRAP_DEFAULT, **settings: Unpack[ClientSettings]) -> None:
        check_names(settings, ClientSettings.__annotations__, "an admin")
        super().__init__(Cluster(parse_bootstrap(bootstrap), client_options(settings)))

    async def list_groups(self) -> tuple[GroupListing, ...]:
        return tuple(await GroupAdmin(self.cluster).list_groups())

    async def describe_group(self, group_id: str) -> GroupView:
        return await GroupAdmin(self.cluster).describe_group(group_id)

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, DlogError | None]:
        """Returns what became of each: None if it is gone, or the reason why not."""
        return await GroupAdmin(self.cluster).delete_groups(group_ids)

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group: of all partitions that have one, or of these."""
        return await GroupOffsets(self.cluster, group_id).fetch(partitions)

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group that has no members."""
        wanted = {each: OffsetAndMetadata(offset) for each, offset in offsets.items()}
        await GroupOffsets(self.cluster, group_id).commit(wanted)
