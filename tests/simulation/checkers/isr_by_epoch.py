"""No ghost in the ISR: whoever enters it was named by the leader of today in the epoch of its present life.

A replica that fetched, crashed and came back may have less than it had.  So an entry that lets brokers into
an ISR must be what a leader proposed, in the partition epoch of that moment, with the broker epochs of that
moment.  Where it ends a move, those are in the ISR who still have a replica.
"""

from distributedlog.controller.deltas import PartitionDelta
from distributedlog.controller.image import MetadataImage, Partition
from distributedlog.controller.requests import UNKNOWN_EPOCH, AlterPartitionsRequest, IsrChange, Request
from distributedlog.model.ids import Uuid
from tests.simulation.checkers.control import ControlChecker, ControlView, Step


class IsrByEpoch(ControlChecker):
    name = "no ghost in the ISR"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._proposed: dict[tuple[Uuid, int, int], list[tuple[AlterPartitionsRequest, IsrChange]]] = {}

    def on_proposed(self, request: Request) -> None:
        assert isinstance(request, AlterPartitionsRequest)
        for change in request.changes:
            key = (change.topic_id, change.partition_id, change.partition_epoch)
            self._proposed.setdefault(key, []).append((request, change))

    def on_commit(self, step: Step) -> None:
        for delta in step.delta.partitions:
            old, new = delta.old, delta.new
            if old is None or new is None or set(new.isr) <= set(old.isr):
                continue
            elected = new.leader != old.leader and new.isr == (new.leader,)
            if not elected and not self._was_proposed(step.before, delta, old, new):
                self.fail(f"{delta.topic.name}-{delta.partition_id}: {old} became {new}")

    def _was_proposed(
        self, image: MetadataImage, delta: PartitionDelta, old: Partition, new: Partition
    ) -> bool:
        key = (delta.topic.topic_id, delta.partition_id, old.partition_epoch)
        return any(
            request.broker_id == old.leader
            and request.broker_epoch == image.brokers[old.leader].epoch
            and change.leader_epoch == old.leader_epoch
            and {member.broker_id for member in change.isr}.intersection(new.replicas) == set(new.isr)
            and all(
                member.broker_epoch == image.brokers[member.broker_id].epoch
                or (member.broker_epoch == UNKNOWN_EPOCH and member.broker_id in old.isr)
                for member in change.isr
            )
            for request, change in self._proposed.get(key, ())
        )
