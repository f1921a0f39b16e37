"""The fenced lead nothing: a leader is registered, unfenced and not on its way out, in every image.

Where there are eligible leaders (level 2), the same holds for everyone in the ISR of a partition that is led.
One that nobody leads may have kept its last member from the time before.
"""

from distributedlog.controller.elections import all_partitions
from distributedlog.controller.features import has_eligible_leaders
from distributedlog.controller.records import NO_LEADER
from tests.simulation.checkers.control import ControlChecker, Step


class FencedLeadNothing(ControlChecker):
    name = "the fenced lead nothing"

    def on_commit(self, step: Step) -> None:
        image = step.after
        for topic, partition_id, partition in all_partitions(image) if step.delta.brokers else step.touched():
            if partition.leader == NO_LEADER:
                continue
            in_sync = partition.isr if has_eligible_leaders(image.level) else ()
            for broker_id in (partition.leader, *in_sync):
                if not image.is_active(broker_id):
                    self.fail(
                        f"{topic.name}-{partition_id} at the offset {step.offset}: {partition}, "
                        f"but broker {broker_id} is {image.brokers.get(broker_id)}"
                    )
