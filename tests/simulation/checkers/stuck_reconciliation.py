"""Progress after healing: a while after the last fault every member has come to the target, and gets on.

The group's members are those that live, all in the group's epoch; every partition of a topic that somebody
subscribes to is read by one of its subscribers; and whoever reads has had a commit acknowledged since.
"""

from collections import Counter
from collections.abc import Sequence

from distributedlog.groups.consumer.topics import TopicIdPartition
from tests.simulation.checkers.groups import Consumer, GroupsChecker, GroupsView


class StuckReconciliation(GroupsChecker):
    name = "stuck reconciliation"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._healed_us: int | None = None

    def healed(self) -> None:
        self._healed_us = self.view.now_us

    def finish_consumers(self, consumers: Sequence[Consumer]) -> None:
        if self._healed_us is None:
            return
        for group in sorted({each.group for each in consumers}):
            living = [each for each in consumers if each.group == group and each.is_alive]
            self._check_members(group, living)
            self._check_parts(group, living)
            late = [each.name for each in living if each.owned and each.acknowledged_us < self._healed_us]
            if late:
                self.fail(f"{group}: nothing of {late} was acknowledged since")

    def _check_members(self, group: str, living: list[Consumer]) -> None:
        idle = [each.name for each in living if not each.is_working]
        if idle or not living:
            self.fail(f"{group}: {idle or 'nobody'} of {len(living)} has come to work")
        logged = self.view.consumer_log.groups[group]
        if logged.said.keys() != {each.member_id for each in living}:
            self.fail(f"{group}: its members are {sorted(logged.said)}")
        epochs = {each.name: each.epoch for each in living}
        if set(epochs.values()) != {logged.epoch}:
            self.fail(f"{group} is in epoch {logged.epoch}, and its members in {epochs}")

    def _check_parts(self, group: str, living: list[Consumer]) -> None:
        wanted = [
            TopicIdPartition(topic_id, partition)
            for topic_id, topic in self.view.topic_names.items()
            if any(each.subscription.names(topic) for each in living)
            for partition in range(self.view.partition_count(topic_id))
        ]
        owned = Counter(tp for each in living for tp in each.owned)
        if owned != Counter(wanted):
            self.fail(f"{group}: its partitions are read {sorted(owned.items())}")
        for each in living:
            if not all(each.subscription.names(self.view.topic_names[tp.topic_id]) for tp in each.owned):
                self.fail(f"{each.name} reads {sorted(each.owned)} and subscribes to {each.subscription}")
