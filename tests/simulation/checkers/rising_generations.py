"""The generations of a group rise: in the log, and for each member that is told of them."""

from distributedlog.groups.records import GroupMetadataRecord, GroupRecord
from tests.simulation.checkers.groups import GroupsChecker, GroupsView, Member


class RisingGenerations(GroupsChecker):
    name = "generations rise"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._written: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def on_commit(self, record: GroupRecord) -> None:
        if isinstance(record, GroupMetadataRecord):
            if record.value is None:
                self.fail(f"the group {record.key.group} was forgotten")
            self._rise(self._written, record.key.group, record.value.generation, "the log")

    def on_told(self, member: Member) -> None:
        self._rise(self._told, member.name, member.generation, member.name)

    def _rise(self, known: dict[str, int], key: str, generation: int, who: str) -> None:
        if generation < known.get(key, 0):
            self.fail(f"{who} goes from generation {known[key]} to {generation}")
        known[key] = generation
