"""ISR within replicas: and so is the ELR, which has nobody of the ISR; the leader is in sync."""

from distributedlog.controller.records import NO_LEADER
from tests.simulation.checkers.control import ControlChecker, Step


class IsrWithinReplicas(ControlChecker):
    name = "ISR within replicas"

    def on_commit(self, step: Step) -> None:
        for topic, partition_id, partition in step.touched():
            replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
            sound = isr <= replicas and elr <= replicas and not isr & elr and len(partition.isr) == len(isr)
            if not sound or (partition.leader != NO_LEADER and partition.leader not in isr):
                self.fail(f"{topic.name}-{partition_id} at the offset {step.offset}: {partition}")
