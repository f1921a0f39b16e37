"""An image is a prefix: what a broker shows is what the committed log says up to the image's offset.

The first image of a process, and the last of each node, is compared whole; in between it is enough that what
changed from one to the next is what the log changed.
"""

from distributedlog.controller.deltas import diff
from distributedlog.controller.image import MetadataImage
from tests.simulation.checkers.control import Administration, ControlChecker, ControlView, Step

EMPTY = MetadataImage()


class ImagePrefix(ControlChecker):
    name = "image is a prefix"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._shown: dict[int, MetadataImage] = {}

    def restarted(self, node_id: int) -> None:
        """A new process has nothing to go on from."""
        self._shown[node_id] = EMPTY

    def on_publish(self, node_id: int, image: MetadataImage) -> None:
        before = self._shown[node_id]
        if image.offset < before.offset:
            self.fail(f"node {node_id} went back to {image.offset} from {before.offset}")
        if not self._follows(before, image, self._truth_at(node_id, image.offset)):
            self.fail(f"node {node_id} shows at the offset {image.offset} what the log does not say")
        self._shown[node_id] = image

    def _truth_at(self, node_id: int, offset: int) -> Step | None:
        step = self.view.step_at(offset)
        if step is None and offset != EMPTY.offset:
            self.fail(f"node {node_id} shows the offset {offset}, where nothing is committed")
        return step

    def _follows(self, before: MetadataImage, image: MetadataImage, step: Step | None) -> bool:
        if step is None or before.offset == EMPTY.offset:
            return image == (EMPTY if step is None else step.after)
        if step.before.offset == before.offset:
            return diff(before, image) == step.delta
        known = self.view.step_at(before.offset)
        return known is not None and diff(before, image) == diff(known.after, step.after)

    def finish(self, operations: list[Administration]) -> None:
        for node_id, image in self._shown.items():
            step = self.view.step_at(image.offset)
            if image != (EMPTY if step is None else step.after):
                self.fail(f"node {node_id} shows at the offset {image.offset} what the log does not say")
