"""Visible after ack: a change that a broker acknowledges is committed, and in the broker's own image."""

from distributedlog.model.ids import Uuid
from tests.simulation.checkers.control import Administration, ControlChecker


class VisibleAfterAck(ControlChecker):
    name = "visible after ack"

    def on_answer(self, operation: Administration) -> None:
        if operation.outcome != "ok":
            return
        image = operation.visible
        for topic_id in operation.topic_ids:
            if operation.kind == "create" and not self._was_created(operation, topic_id):
                self.fail(f"{operation} was acknowledged and is not in the image at {image.offset}")
            if operation.kind == "delete" and topic_id in image.topics:
                self.fail(f"{operation} was acknowledged and {topic_id} is still in the image")
        for name in operation.names:
            if operation.kind == "grow" and not self._has_grown(operation, name):
                self.fail(f"{operation} was acknowledged, and the image at {image.offset} has less")
            if operation.kind == "set" and not self._was_set(operation):
                self.fail(f"{operation} was acknowledged and is not in the image at {image.offset}")

    def _was_created(self, operation: Administration, topic_id: Uuid) -> bool:
        """It is there, or was and is deleted since."""
        if topic_id in operation.visible.topics:
            return True
        return any(
            topic_id in step.after.topics
            for step in self.view.steps
            if step.offset <= operation.visible.offset
        )

    def _has_grown(self, operation: Administration, name: str) -> bool:
        (topic_id,) = operation.topic_ids
        topic = operation.visible.topics.get(topic_id)
        return topic is None or len(topic.partitions) >= operation.partitions

    def _was_set(self, operation: Administration) -> bool:
        """Its value stands in an entry that the image has."""
        return any(
            getattr(record, "value", None) == operation.marks[0]
            for step in reversed(self.view.steps)
            if step.offset <= operation.visible.offset
            for record, _ in step.records
        )
