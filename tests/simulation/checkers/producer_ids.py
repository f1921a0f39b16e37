"""Producer ids are given once: no two blocks that were given out share an id."""

from distributedlog.controller.requests import ProducerIdBlock
from tests.simulation.checkers.control import ControlChecker, ControlView, Served


class ProducerIds(ControlChecker):
    name = "producer ids are given once"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._given: set[int] = set()

    def on_served(self, served: Served) -> None:
        block = served.response
        if not isinstance(block, ProducerIdBlock):
            return
        ids = range(block.first, block.first + block.count)
        if self._given.intersection((ids[0], ids[-1])):
            self.fail(f"{block} was given out, and some of it had been before")
        self._given.update(ids)
