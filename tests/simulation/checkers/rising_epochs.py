"""Epochs only rise: of controllers, of brokers, of partitions and of their leaders.

Also over a broker's unregistration.  A partition's epoch rises with every change, its leader's with every
change of leader.
"""

from distributedlog.controller.deltas import PartitionDelta
from distributedlog.controller.records import ControllerElected
from tests.simulation.checkers.control import ControlChecker, ControlView, Step


class RisingEpochs(ControlChecker):
    name = "epochs only rise"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._broker_epochs: dict[int, int] = {}
        self._controller_epoch = 0

    def on_commit(self, step: Step) -> None:
        for record, _ in step.records:
            if isinstance(record, ControllerElected):
                if record.epoch < self._controller_epoch or record.epoch != step.term:
                    self.fail(f"controller epoch {record.epoch} in term {step.term} at {step.offset}")
                self._controller_epoch = record.epoch
        delta = step.delta
        for broker_id, _, new in delta.brokers:
            if new is None:
                continue
            if new.epoch < self._broker_epochs.get(broker_id, -1):
                self.fail(f"broker {broker_id} went back to the epoch {new.epoch}")
            self._broker_epochs[broker_id] = new.epoch
        for each in delta.partitions:
            self._check_partition(each)

    def _check_partition(self, delta: PartitionDelta) -> None:
        old, new = delta.old, delta.new
        if old is None or new is None:
            return
        led_anew = new.leader != old.leader
        if new.partition_epoch <= old.partition_epoch or new.leader_epoch < old.leader_epoch + led_anew:
            self.fail(f"{delta.topic.name}-{delta.partition_id}: {old} became {new}")
