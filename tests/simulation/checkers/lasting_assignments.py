"""What a member was told that it owns is committed: no failover makes it untrue."""

from distributedlog.groups.records import GroupMetadataRecord, GroupRecord
from tests.simulation.checkers.groups import GroupsChecker, GroupsView, Member


class LastingAssignments(GroupsChecker):
    name = "assignments last"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._written: dict[tuple[str, int, str], bytes] = {}

    def on_commit(self, record: GroupRecord) -> None:
        if isinstance(record, GroupMetadataRecord) and record.value is not None:
            for member in record.value.members:
                key = (record.key.group, record.value.generation, member.member_id)
                self._written[key] = bytes(member.assignment)

    def on_told(self, member: Member) -> None:
        written = self._written.get((member.group, member.generation, member.member_id))
        if written != bytes(member.owned):
            self.fail(
                f"{member.name} was told {member.owned} in generation {member.generation}; "
                f"committed is {None if written is None else tuple(written)}"
            )
