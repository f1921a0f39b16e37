"""Where a group stands never goes back: not in the log, and not for whoever asks.

A member begins where its group stands and only goes forward, and nobody but the owner of a partition may
commit there.  So a position that goes back, in the log, was committed by somebody who was not the owner any
more.  A reader is told what was acknowledged before it asked, or something later; "there is no position" is
the furthest back of all.
"""

from collections.abc import Sequence

from distributedlog.groups.records import GroupRecord, OffsetRecord
from distributedlog.model.ids import TopicPartition
from tests.simulation.checkers.groups import CommittedOffsets, GroupsChecker, GroupsView

NO_POSITION = -1


class OffsetRegression(GroupsChecker):
    name = "offset regression"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._stands: dict[tuple[str, TopicPartition], tuple[int, str]] = {}

    def on_commit(self, record: GroupRecord) -> None:
        if not isinstance(record, OffsetRecord):
            return
        group, partition = record.group_id, record.partition
        before, by = self._stands.get((group, partition), (NO_POSITION, ""))
        if record.value is None:
            self.fail(f"the position of {group} in {partition} was forgotten: it was {before}")
        if record.value.offset < before:
            self.fail(
                f"{group} in {partition}: from {before} ({by}) to {record.value.offset} "
                f"({record.value.metadata})"
            )
        self._stands[group, partition] = record.value.offset, record.value.metadata

    def on_read(
        self, who: str, wanted: Sequence[TopicPartition], found: CommittedOffsets, before: CommittedOffsets
    ) -> None:
        for partition in wanted:
            told, acknowledged = found.get(partition, NO_POSITION), before.get(partition, NO_POSITION)
            if told < acknowledged:
                self.fail(f"{who} was told {told} for {partition}: {acknowledged} was acknowledged")
