"""One process per broker: while one is heard, another is not taken in its place.

Who says that the one before is dead is taken at once, and then it has to be.

Only what the same controller heard counts: a new one has heard nobody yet.  An operator who unregisters a
broker says that it is gone.
"""

from collections.abc import Callable

from distributedlog.controller.records import UnregisterBroker
from distributedlog.controller.requests import HeartbeatReply, HeartbeatRequest, RegisterBrokerReply
from distributedlog.controller.requests import RegisterBrokerRequest as Register
from distributedlog.model.ids import Uuid
from tests.simulation.checkers.control import ControlChecker, ControlView, Served, Step


class OneProcess(ControlChecker):
    name = "one process per broker"

    def __init__(
        self, view: ControlView, session_timeout_ms: int, is_running: Callable[[Uuid], bool]
    ) -> None:
        super().__init__(view)
        self._is_running = is_running
        self._session_timeout_ms = session_timeout_ms
        self._incarnations: dict[tuple[int, int], Uuid] = {}
        """The incarnations by broker and epoch."""
        self._heard: dict[tuple[int, int], tuple[Uuid, int]] = {}
        """Which process was heard last, and when by the controller's clock, by term and broker."""

    def on_active(self, node_id: int, term: int) -> None:
        """What a controller has heard is lost with its machine, also if it takes charge in the same term."""
        self._heard = {key: heard for key, heard in self._heard.items() if key[0] != term}

    def on_commit(self, step: Step) -> None:
        for record, _ in step.records:
            if isinstance(record, UnregisterBroker):
                self._heard = {key: heard for key, heard in self._heard.items() if key[1] != record.broker_id}

    def on_served(self, served: Served) -> None:
        request, reply = served.request, served.response
        if isinstance(request, HeartbeatRequest) and isinstance(reply, HeartbeatReply):
            incarnation = self._incarnations.get((request.broker_id, request.broker_epoch))
            key = (served.term, request.broker_id)
            if reply.should_shut_down:
                self._heard.pop(key, None)
            elif incarnation is not None:
                self._heard[key] = (incarnation, served.asked_ms)
        elif isinstance(request, Register) and isinstance(reply, RegisterBrokerReply):
            self._check(served, request)
            self._incarnations[request.broker_id, reply.broker_epoch] = request.incarnation_id

    def _check(self, served: Served, request: Register) -> None:
        for incarnation in request.predecessors:
            if self._is_running(incarnation):
                self.fail(f"broker {request.broker_id} has a predecessor that runs")
        heard = self._heard.get((served.term, request.broker_id))
        if heard is None or heard[0] == request.incarnation_id or heard[0] in request.predecessors:
            return
        silence_ms = served.asked_ms - heard[1]
        if 0 <= silence_ms < self._session_timeout_ms:
            self.fail(
                f"broker {request.broker_id} was heard, and {silence_ms} ms later another process taken"
            )
