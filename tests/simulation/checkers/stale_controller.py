"""A stale controller is not obeyed: it lets out no answer that was made after it was overtaken.

A later term has begun for certain once an entry of it is committed.  Who was asked after that and answers as
the controller of an earlier term speaks of a cluster that is no more; heartbeats and refusals included.
"""

from tests.simulation.checkers.control import ControlChecker, ControlView, Served, Step


class StaleController(ControlChecker):
    name = "a stale controller is not obeyed"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._begun: list[tuple[int, int]] = []
        """When each term that committed something did so first."""

    def on_commit(self, step: Step) -> None:
        if not self._begun or step.term > self._begun[-1][1]:
            self._begun.append((step.time_us, step.term))

    def on_served(self, served: Served) -> None:
        known = next((term for time_us, term in reversed(self._begun) if time_us < served.asked_us), 0)
        if known > served.term:
            self.fail(
                f"node {served.node_id} answered {type(served.request).__name__} as the controller of term "
                f"{served.term}, and was asked when term {known} had committed an entry"
            )
