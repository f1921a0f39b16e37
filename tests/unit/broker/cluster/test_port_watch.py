from collections.abc import Callable

from distributedlog.broker.cluster.port_watch import LOOK_MS, PortWatch, SilentBroker, Tried
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.requests import FenceRefusedRequest, Request
from distributedlog.ports.executor import Done, Outcome
from tests.simulation.loop import SimLoop


class Stage:
    """A controller that says who is silent, and ports that answer when they are told to."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.silent: list[SilentBroker] = []
        self.tries: list[tuple[SilentBroker, Tried]] = []
        self.fenced: list[Request] = []
        self.watch = PortWatch(
            self,
            lambda broker, tried: self.tries.append((broker, tried)),
            clock=self,
            scheduler=self,
        )

    def find_silent(self) -> list[SilentBroker]:
        return self.silent

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        self.fenced.append(request)
        done(Outcome(ControllerReply(None, 0)))

    def monotonic_ms(self) -> int:
        return self.loop.now_us // 1000

    def wall_ms(self) -> int:
        return self.monotonic_ms()

    def call_at(self, time_ms: int, callback: Callable[[], None]) -> None:
        self.loop.call_at(time_ms * 1000, callback)

    def post(self, callback: Callable[[], None]) -> None:
        self.loop.call_after(0, callback)

    def pass_looks(self, count: int = 1) -> None:
        self.loop.run_until(self.loop.now_us + count * LOOK_MS * 1000)


ONE = SilentBroker(1, 17, ())


def test_a_silent_broker_whose_ports_refuse_is_fenced() -> None:
    stage = Stage()
    stage.watch.take_activity(True)
    stage.pass_looks()
    assert not stage.tries
    stage.silent = [ONE]
    stage.pass_looks()
    ((broker, tried),) = stage.tries
    tried(True)
    assert stage.fenced == [FenceRefusedRequest(1, 17)]
    assert broker == ONE


def test_one_whose_ports_do_not_refuse_is_tried_again_and_not_fenced() -> None:
    stage = Stage()
    stage.silent = [ONE]
    stage.watch.take_activity(True)
    stage.pass_looks(3)
    assert len(stage.tries) == 1  # one try at a time
    stage.tries[0][1](False)
    stage.pass_looks()
    assert (len(stage.tries), stage.fenced) == (2, [])


def test_only_the_active_controller_looks() -> None:
    stage = Stage()
    stage.silent = [ONE]
    stage.watch.take_activity(False)
    stage.pass_looks()
    assert not stage.tries
    stage.watch.take_activity(True)
    stage.watch.take_activity(False)
    stage.tries[0][1](False)
    stage.pass_looks(2)
    assert len(stage.tries) == 1


def test_after_the_stop_nobody_is_fenced() -> None:
    stage = Stage()
    stage.silent = [ONE]
    stage.watch.take_activity(True)
    stage.watch.stop()
    stage.tries[0][1](True)
    stage.pass_looks(2)
    assert (len(stage.tries), stage.fenced) == (1, [])


def test_a_controller_that_is_elected_again_and_again_looks_as_often_as_before() -> None:
    stage = Stage()
    for is_active in (True, False) * 5:
        stage.watch.take_activity(is_active)
    stage.watch.take_activity(True)
    stage.pass_looks()
    looks = 0

    def find_silent() -> list[SilentBroker]:
        nonlocal looks
        looks += 1
        return []

    stage.find_silent = find_silent  # type: ignore[method-assign]
    stage.pass_looks(3)
    assert looks == 3
