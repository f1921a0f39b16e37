"""A partition belongs to one member of a generation."""

from tests.simulation.checkers.groups import GroupsChecker, GroupsView, Member


class TwoOwners(GroupsChecker):
    name = "two owners"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._owners: dict[tuple[str, int, int], str] = {}

    def on_told(self, member: Member) -> None:
        for partition in member.owned:
            key = (member.group, member.generation, partition)
            owner = self._owners.setdefault(key, member.owner)
            if owner != member.owner:
                self.fail(f"{partition} in generation {member.generation}: {owner} and {member.owner}")
