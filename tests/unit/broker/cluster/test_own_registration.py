"""A controller sees to it that the image says where it is, and asks no more often than it has to."""

from distributedlog.broker.cluster.own_registration import PAUSE_MS, OwnRegistration
from distributedlog.controller.features import LEVEL_CONTROLLERS, LEVEL_MAX, METADATA_FEATURE
from distributedlog.controller.image import ControllerRegistration, MetadataImage
from distributedlog.controller.persistent_map import PersistentMap
from distributedlog.controller.requests import RegisterControllerRequest, Request, Response
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.model.ids import Uuid
from distributedlog.ports.executor import Done, Outcome
from tests.unit.broker.control_stage import Timers

OWN = ControllerRegistration(2, Uuid(bytes(16)), 7, "h", 9093)


def image(*registered: ControllerRegistration, level: int = LEVEL_MAX) -> MetadataImage:
    controllers: PersistentMap[int, ControllerRegistration] = PersistentMap()
    for each in registered:
        controllers = controllers.set(each.controller_id, each)
    features: PersistentMap[str, int] = PersistentMap()
    return MetadataImage(
        offset=1, cluster_id="c", features=features.set(METADATA_FEATURE, level), controllers=controllers
    )


class Bench:
    def __init__(self) -> None:
        self.timers = Timers()
        self.asked: list[tuple[Request, Done[Response]]] = []
        self.registration = OwnRegistration(OWN, self, clock=self.timers.clock, scheduler=self.timers)

    def ask(self, request: Request, timeout_ms: int, done: Done[Response]) -> None:
        self.asked.append((request, done))


def test_it_registers_once_and_again_when_it_was_forgotten() -> None:
    bench = Bench()
    bench.registration.take_image(MetadataImage())
    assert not bench.asked, "nothing is known yet"
    bench.registration.take_image(image())
    bench.registration.take_image(image())
    ((request, done),) = bench.asked
    assert request == RegisterControllerRequest("c", OWN)
    bench.registration.take_image(image(OWN))
    done(Outcome(None))
    bench.timers.advance(10 * PAUSE_MS)
    assert len(bench.asked) == 1
    bench.registration.take_image(image())
    assert len(bench.asked) == 2


def test_what_failed_is_asked_again_after_a_pause_until_it_stops() -> None:
    bench = Bench()
    bench.registration.take_image(image(OWN._replace(port=1)))
    bench.asked[0][1](Outcome(error=RequestTimedOutError("nobody leads")))
    assert len(bench.asked) == 1
    bench.timers.advance(PAUSE_MS)
    assert len(bench.asked) == 2
    bench.registration.stop()
    bench.asked[1][1](Outcome(error=RequestTimedOutError("nobody leads")))
    bench.timers.advance(10 * PAUSE_MS)
    assert len(bench.asked) == 2


def test_a_cluster_of_an_earlier_level_is_not_asked() -> None:
    bench = Bench()
    bench.registration.take_image(image(level=LEVEL_CONTROLLERS - 1))
    assert not bench.asked
    bench.registration.take_image(image(level=LEVEL_CONTROLLERS))
    assert len(bench.asked) == 1
