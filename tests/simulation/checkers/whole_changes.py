"""No half-applied change: topics that are only created and deleted together are there together.

So it is in every image and after every entry; and a topic has all its partitions, numbered without gaps.
"""

from collections.abc import Sequence

from distributedlog.controller.image import MetadataImage
from tests.simulation.checkers.control import ControlChecker, ControlView, Step


class WholeChanges(ControlChecker):
    name = "no half-applied change"

    def __init__(self, view: ControlView, together: Sequence[tuple[str, ...]]) -> None:
        super().__init__(view)
        self._together = together

    def on_commit(self, step: Step) -> None:
        self._check("the log", step.after)
        grown = [each.topic for each in step.delta.partitions if each.old is None]
        for topic in (*step.delta.topics_created, *grown):
            there = sorted(topic.partitions)
            if not there or there != list(range(len(there))):
                self.fail(f"the log has at the offset {step.offset} {topic.name} with the partitions {there}")

    def on_publish(self, node_id: int, image: MetadataImage) -> None:
        self._check(f"node {node_id}", image)

    def _check(self, who: str, image: MetadataImage) -> None:
        for names in self._together:
            there = [name for name in names if name in image.topic_ids]
            if there and len(there) < len(names):
                self.fail(f"{who} has at the offset {image.offset} of {names} only {there}")
