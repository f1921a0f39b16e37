"""Members that go: by themselves, because they are silent, or because they are too slow.

What a member held is free at once.  Who was silent may still be reading: its commits are refused from then
on, for it is in no epoch that the group knows.
"""

from collections.abc import Iterable

from distributedlog.groups.consumer import planning, records
from distributedlog.groups.consumer.group import Draft
from distributedlog.groups.consumer.planning import TopicLookup


def remove(draft: Draft, member_ids: Iterable[str], lookup: TopicLookup) -> None:
    """The group's epoch rises once for all of them."""
    for member_id in member_ids:
        draft.write(*records.make_member_tombstones(draft.group_id, member_id))
    planning.bump_epoch(draft, lookup)
