"""What a coordinator has in memory is what its log says, also when all that was overwritten is cleaned away.

A compacted log has the last record of each key, in the order in which they were written, and after a while
nothing of what was taken back.
"""

from tests.simulation.checkers.groups import Encoded, GroupsChecker


class ReplayEqualsState(GroupsChecker):
    name = "replay equals state"

    def on_state(self, state: set[Encoded], replayed: set[Encoded]) -> None:
        if state != replayed:
            self.fail(f"only in memory: {state - replayed}; only in the log: {replayed - state}")
