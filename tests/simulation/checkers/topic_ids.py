"""Topic ids are never used again: not even after the topic was deleted."""

from distributedlog.controller.records import TopicCreated
from distributedlog.model.ids import Uuid
from tests.simulation.checkers.control import ControlChecker, ControlView, Step


class TopicIds(ControlChecker):
    name = "topic ids are never used again"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._used: set[Uuid] = set()

    def on_commit(self, step: Step) -> None:
        for record, _ in step.records:
            if isinstance(record, TopicCreated):
                if record.topic_id in self._used:
                    self.fail(f"{record.name} got the id {record.topic_id}, which another topic had")
                self._used.add(record.topic_id)
