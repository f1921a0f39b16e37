"""Progress after healing: a while after the last fault the cluster is whole again, and does what it is asked.

One controller is active; whoever lives is unfenced and whoever does not is fenced; every partition that
could have a leader has one; all nodes show what was committed a moment ago; and a request that was made after
the healing was carried out.
"""

from collections.abc import Collection, Mapping

from distributedlog.broker.cluster.lifecycle import LifecycleState
from distributedlog.controller.elections import all_partitions
from distributedlog.controller.image import MetadataImage, Partition, ResourceType
from distributedlog.controller.records import NO_LEADER
from distributedlog.model.cluster_settings import UNCLEAN_ELECTION
from tests.simulation.checkers.control import Administration, ControlChecker, ControlView

SPREAD_US_MAX = 1_000_000


class Convergence(ControlChecker):
    name = "progress after healing"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._healed_us: int | None = None
        self.active: Collection[int] = ()
        """Who takes itself for the controller; this and the next two are given by the cluster at the end."""
        self.images: Mapping[int, MetadataImage] = {}
        """What each living node shows."""
        self.living: Mapping[int, LifecycleState | None] = {}
        """How each broker sees itself; None: its process is gone."""
        self.are_operations_due = True
        """Whether anybody asks the controllers for something until the end."""

    def healed(self) -> None:
        self._healed_us = self.view.now_us

    def finish(self, operations: list[Administration]) -> None:
        if self._healed_us is None:
            return
        if len(self.active) != 1:
            self.fail(f"{sorted(self.active)} are active")
        truth, old = self.view.steps[-1].after, self.view.now_us - SPREAD_US_MAX
        settled = max((step.offset for step in self.view.steps if step.time_us < old), default=-1)
        behind = sorted(node_id for node_id, image in self.images.items() if image.offset < settled)
        if behind:
            self.fail(f"{behind} do not show the offset {settled}: {self.images[behind[0]].offset}")
        self._check_brokers(truth)
        for topic, partition_id, partition in all_partitions(truth):
            unclean = truth.settings_of(ResourceType.TOPIC, topic.name).get(UNCLEAN_ELECTION) == "true"
            if partition.leader == NO_LEADER and _could_be_led(truth, partition, unclean):
                self.fail(f"nobody leads {topic.name}-{partition_id}: {partition}")
        done = [each for each in operations if each.outcome == "ok" and each.invoked_us > self._healed_us]
        if not done and self.are_operations_due:
            self.fail("nothing was done after the last fault")

    def _check_brokers(self, truth: MetadataImage) -> None:
        for broker_id, state in self.living.items():
            broker = truth.brokers.get(broker_id)
            if state is None and broker is not None and not broker.fenced:
                self.fail(f"broker {broker_id} is gone, and is not fenced")
            if state is not None and (state is not LifecycleState.RUNNING or not truth.is_active(broker_id)):
                self.fail(f"broker {broker_id} lives, takes itself for {state.value}, and is {broker}")


def _could_be_led(image: MetadataImage, partition: Partition, unclean: bool) -> bool:
    if unclean:
        return any(image.is_active(each) for each in partition.replicas)
    eligible = partition.isr or partition.elr or partition.last_known_elr
    return any(image.is_active(each) for each in eligible)
