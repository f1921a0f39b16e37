"""Administration for programs without an event loop: `distributedlog.Admin`.

`BlockingAdmin` of `client/admin`, made from a bootstrap list and settings, with what there is about groups
beside it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Unpack

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.client.admin.groups import GroupAdmin, GroupListing, GroupView
from distributedlog.client.faces.settings import (
    BOOTSTRAP_DEFAULT,
    ClientSettings,
    check_names,
    client_options,
)
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition


class Admin(BlockingAdmin):
    """Administers a cluster; connects when it is first used.  To be used with `with`."""

    def __init__(self, bootstrap: str = BOOTSTRAP_DEFAULT, **settings: Unpack[ClientSettings]) -> None:
        check_names(settings, ClientSettings.__annotations__, "an admin")
        super().__init__(bootstrap, client_options(settings))

    def list_groups(self) -> tuple[GroupListing, ...]:
        return tuple(self._run(GroupAdmin(self._admin.cluster).list_groups()))

    def describe_group(self, group_id: str) -> GroupView:
        return self._run(GroupAdmin(self._admin.cluster).describe_group(group_id))

    def delete_groups(self, group_ids: Sequence[str]) -> dict[str, DlogError | None]:
        """Returns what became of each: None if it is gone, or the reason why not."""
        return self._run(GroupAdmin(self._admin.cluster).delete_groups(group_ids))

    def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group: of all partitions that have one, or of these."""
        return self._run(GroupOffsets(self._admin.cluster, group_id).fetch(partitions))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group that has no members."""
        wanted = {each: OffsetAndMetadata(offset) for each, offset in offsets.items()}
        self._run(GroupOffsets(self._admin.cluster, group_id).commit(wanted))
