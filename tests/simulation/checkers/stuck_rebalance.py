"""Progress after healing: a while after the last fault every member has its part, and gets on.

All who live are of one generation, every partition belongs to one of them, and each has had a commit
acknowledged since.
"""

from collections import Counter
from collections.abc import Sequence

from tests.simulation.checkers.groups import GroupsChecker, GroupsView, Member
from tests.simulation.groups_members import PARTITIONS


class StuckRebalance(GroupsChecker):
    name = "stuck rebalance"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._healed_us: int | None = None

    def healed(self) -> None:
        self._healed_us = self.view.now_us

    def finish(self, members: Sequence[Member]) -> None:
        if self._healed_us is None:
            return
        for group in sorted({each.group for each in members}):
            living = [each for each in members if each.group == group and each.is_alive]
            idle = [each.name for each in living if not each.is_working]
            if idle or not living:
                self.fail(f"{group}: {idle or 'nobody'} of {len(living)} has come to work")
            generations = {each.generation for each in living}
            if len(generations) > 1:
                self.fail(f"{group}: its members are of the generations {sorted(generations)}")
            owned = Counter(partition for each in living for partition in each.owned)
            if owned != Counter(range(PARTITIONS)):
                self.fail(f"{group}: its partitions are owned {dict(sorted(owned.items()))}")
            late = [each.name for each in living if each.acknowledged_us < self._healed_us]
            if late:
                self.fail(f"{group}: nothing of {late} was acknowledged since")
