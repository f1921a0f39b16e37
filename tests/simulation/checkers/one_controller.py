"""One controller per term: nobody else takes charge in it, and its first entry says who it is."""

from distributedlog.controller.records import ControllerElected
from tests.simulation.checkers.control import ControlChecker, ControlView, Step


class OneController(ControlChecker):
    name = "one controller per term"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._active: dict[int, int] = {}
        self._elected: dict[int, int] = {}

    def on_active(self, node_id: int, term: int) -> None:
        if self._active.setdefault(term, node_id) != node_id:
            self.fail(f"nodes {self._active[term]} and {node_id} are both active in term {term}")

    def on_commit(self, step: Step) -> None:
        for record, _ in step.records:
            if isinstance(record, ControllerElected):
                self._elected[step.term] = record.controller_id
        writer = self._elected.get(step.term)
        if writer is None:
            self.fail(f"the entry {step.offset} of term {step.term} comes before its controller said so")
        if self._active.get(step.term) != writer:
            self.fail(f"node {writer} wrote in term {step.term}, where {self._active} were active")
