"""Clean leaders: whoever is elected was in sync or eligible, unless an unclean election was allowed.

One more may be elected: the last leader of a partition whose in-sync and eligible replicas are all gone
because everyone restarted uncleanly, the last of them perhaps with this very entry.  And where a move ends by
an ISR that holds its whole target, one of that ISR leads; who is let in is for `isr_by_epoch` to say.
"""

from distributedlog.controller.deltas import PartitionDelta
from distributedlog.controller.image import MetadataImage, Partition, ResourceType
from distributedlog.controller.records import NO_LEADER
from distributedlog.model.cluster_settings import UNCLEAN_ELECTION
from tests.simulation.checkers.control import ControlChecker, ControlView, Step


class CleanLeaders(ControlChecker):
    name = "leader from ISR or ELR"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self.unclean_asked: set[str] = set()
        """Topics for which somebody asked for an unclean election."""

    def on_commit(self, step: Step) -> None:
        delta = step.delta
        restarted = {
            each.key
            for each in delta.brokers
            if each.old is not None and (each.new is None or each.new.epoch != each.old.epoch)
        }
        for partition in delta.partitions:
            self._check(step.after, partition, restarted)

    def _check(self, image: MetadataImage, delta: PartitionDelta, restarted: set[int]) -> None:
        old, new = delta.old, delta.new
        if old is None or new is None or new.leader in (old.leader, NO_LEADER):
            return
        if new.leader in old.isr or new.leader in old.elr or _was_last(old, new.leader, restarted):
            return
        if old.is_moving and not new.is_moving and set(new.replicas) == set(new.isr):
            return
        name = delta.topic.name
        allowed = image.settings_of(ResourceType.TOPIC, name).get(UNCLEAN_ELECTION) == "true"
        if not allowed and name not in self.unclean_asked:
            self.fail(f"{name}-{delta.partition_id}: {new.leader} was elected from {old}")


def _was_last(old: Partition, leader: int, restarted: set[int]) -> bool:
    return {*old.isr, *old.elr} <= restarted and old.last_known_elr == (leader,)
