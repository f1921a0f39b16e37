"""A coordinator answers no reads once another has begun: leases end before their successors do.

Looked at every few milliseconds: who may answer for a partition does so in the newest epoch in which anybody
ever might.  Where clocks differ in speed by more than leases allow for, or an operator unregisters a broker
that is alive, nothing is promised.
"""

from distributedlog.controller.records import UnregisterBroker
from distributedlog.model.ids import Uuid
from tests.simulation.checkers.control import ControlChecker, ControlView, Step

PartitionKey = tuple[Uuid, int]


class LeasesEnd(ControlChecker):
    name = "leases end before their successors begin"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self.is_promised = True
        self._epochs: dict[PartitionKey, int] = {}
        self.moves = 0

    def on_commit(self, step: Step) -> None:
        for message, _ in step.records:
            if isinstance(message, UnregisterBroker) and step.before.is_active(message.broker_id):
                self.is_promised = False

    def on_may_answer(self, node_id: int, partition: PartitionKey, epoch: int) -> None:
        newest = self._epochs.get(partition, -1)
        if self.is_promised and epoch < newest:
            self.fail(f"node {node_id} answers for {partition[1]} in epoch {epoch}: another did in {newest}")
        self.moves += newest >= 0 and epoch > newest
        self._epochs[partition] = max(epoch, newest)
