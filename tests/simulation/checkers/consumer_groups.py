"""Named invariants of simulated groups of the new consumer protocol: what such checkers are told, and all but
the last two of them (`stuck_reconciliation`, `replay_equals_state`)."""

from collections import Counter

from distributedlog.groups.consumer.topics import TopicIdPartition, TopicIdPartitions
from tests.simulation.checkers.consumer_log import Said
from tests.simulation.checkers.groups import Consumer, GroupsChecker, GroupsView


class TwoOwnersAtOnce(GroupsChecker):
    """A partition is held by one member in the log; and whoever takes it up does so after everybody else of
    the group has given it up, but for those whom the group counts among its members no more."""

    name = "two owners at once"

    def on_entry(self, groups: set[str]) -> None:
        for group_id in groups:
            parts = self.view.consumer_log.groups[group_id].parts
            holders = Counter(tp for part in parts.values() for tp in part.assigned | part.revoking)
            twice = [tp for tp, count in holders.items() if count > 1]
            if twice:
                self.fail(f"{group_id}: two members hold {sorted(twice)}")

    def on_taken(self, consumer: Consumer, tps: TopicIdPartitions) -> None:
        members = self.view.consumer_log.groups[consumer.group].said
        for other in self.view.consumers:
            if other is consumer or other.group != consumer.group or not other.is_alive:
                continue
            both = tps & other.owned
            if both and other.member_id in members:
                self.fail(f"{consumer.name} takes {sorted(both)}, which {other.name} still reads")


class PartsLast(GroupsChecker):
    """What a member was told is assigned to it is committed: no failover makes it untrue."""

    name = "parts last"

    def on_consumer_told(self, consumer: Consumer) -> None:
        told = (consumer.group, consumer.member_id, consumer.epoch, consumer.assigned)
        if told not in self.view.consumer_log.written:
            self.fail(f"{consumer.name} was told {sorted(consumer.assigned)} in epoch {consumer.epoch}")


class EpochsRise(GroupsChecker):
    """A group's epoch never falls, and rises with every change of what its members subscribe to; the target's
    is never beyond it, nor a member's beyond the target's."""

    name = "epochs rise"

    def __init__(self, view: GroupsView) -> None:
        super().__init__(view)
        self._before: dict[str, tuple[int, Counter[Said]]] = {}

    def on_entry(self, groups: set[str]) -> None:
        for group_id in groups:
            group = self.view.consumer_log.groups[group_id]
            epoch, said = self._before.get(group_id, (0, Counter()))
            now_said = Counter(group.said.values())
            if group.epoch < epoch:
                self.fail(f"{group_id} goes from epoch {epoch} to {group.epoch}")
            if now_said != said and group.epoch == epoch:
                self.fail(f"{group_id} stays in epoch {epoch}, and its members read something else")
            epochs = [part.epoch for part in group.parts.values()]
            if not max(epochs, default=0) <= group.target_epoch <= group.epoch:
                self.fail(
                    f"{group_id} in {group.epoch}: the target's {group.target_epoch}, members' {epochs}"
                )
            self._before[group_id] = group.epoch, now_said


class OnlyWhatIsSubscribed(GroupsChecker):
    """A target gives nobody what it does not subscribe to, and nobody is given any such thing anew."""

    name = "only what is subscribed to"

    def on_entry(self, groups: set[str]) -> None:
        for group_id in groups:
            group = self.view.consumer_log.groups[group_id]
            if group.epoch != group.target_epoch:
                continue  # the target is of the time before
            for member_id, target in group.targets.items():
                if member_id not in group.said:
                    self.fail(f"{group_id}: there is a target for {member_id}, who is no member")
                topics = {self._topic(tp) for tp in target}
                if not topics <= group.topics_of(member_id):
                    self.fail(f"{group_id}: the target of {member_id} has {sorted(topics)}")

    def on_taken(self, consumer: Consumer, tps: TopicIdPartitions) -> None:
        other = [tp for tp in tps if not consumer.said.names(self._topic(tp))]
        if other:
            self.fail(f"{consumer.name} subscribes to {consumer.said}, and is given {sorted(other)}")

    def _topic(self, tp: TopicIdPartition) -> str:
        return self.view.topic_names[tp.topic_id]
