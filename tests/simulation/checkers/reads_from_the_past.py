"""No broker answers from the past: whoever reads is told what was acknowledged before it asked, or later.

However a leadership has moved, from a broker that is cut off, stands still, or is alive and does not know it.
"""

from tests.simulation.checkers.groups import CommittedOffsets, GroupsChecker

NO_OFFSET = -1


class ReadsFromThePast(GroupsChecker):
    name = "no read from the past"

    def on_probe(self, broker_id: int, group: str, found: CommittedOffsets, before: CommittedOffsets) -> None:
        for partition, acknowledged in before.items():
            told = found.get(partition, NO_OFFSET)
            if told < acknowledged:
                self.fail(
                    f"broker {broker_id} told {told} for {group} in {partition}: "
                    f"{acknowledged} was acknowledged"
                )
