"""How much is taken on, and who waits for whom."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.admission import Admission, ServerLimits
from distributedlog.broker.settings import NodeSettings


class Soon:
    """What the loop would call."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def come(self) -> None:
        while self.callbacks:
            self.callbacks.pop(0)()


class Frame:
    def __init__(self) -> None:
        self.granted: list[int] = []

    def room_made(self, reserved_bytes: int) -> None:
        self.granted.append(reserved_bytes)


def admission_of(in_flight_bytes_max: int = 100) -> tuple[Admission, Soon]:
    soon = Soon()
    return Admission(ServerLimits(in_flight_bytes_max=in_flight_bytes_max), soon), soon


def test_limits_come_from_the_settings() -> None:
    settings_given = NodeSettings(
        socket_request_bytes_max=2000,
        connections_max=5,
        connections_per_ip_max=4,
        connections_idle_ms_max=300,
        connection_setup_timeout_ms=200,
        queued_bytes_per_connection_max=3000,
        queued_bytes_max=9000,
        request_timeout_ms=700,
    )
    limits = ServerLimits.of(settings_given)
    assert (limits.frame_bytes_max, limits.connections_max, limits.connections_per_host_max) == (2000, 5, 4)
    assert (limits.idle_ms_max, limits.setup_ms_max, limits.request_ms_max) == (300, 200, 700)
    assert (limits.in_flight_bytes_per_connection_max, limits.in_flight_bytes_max) == (3000, 9000)


def test_connections_are_counted_per_address_and_in_all() -> None:
    admission = Admission(ServerLimits(connections_max=3, connections_per_host_max=2), Soon())
    admission.enter("a")
    admission.enter("a")
    assert "max.connections.per.ip" in str(admission.refusal("a"))
    assert admission.refusal("b") is None
    admission.enter("b")
    assert "max.connections)" in str(admission.refusal("c"))
    admission.leave("a")
    assert admission.refusal("a") is None
    admission.leave("a")
    admission.leave("b")
    assert admission.connections == 0
    assert not admission._per_host, "an address without connections is forgotten"


def test_room_is_given_in_the_order_of_asking_and_never_in_the_midst_of_something_else() -> None:
    admission, soon = admission_of(100)
    first, second, third = Frame(), Frame(), Frame()
    assert admission.reserve(80, first)
    assert not admission.reserve(90, second)
    assert not admission.reserve(5, third), "a small one does not overtake"
    admission.release(80)
    assert second.granted == []
    soon.come()
    assert (second.granted, third.granted) == ([90], [5])
    assert admission.in_flight_bytes == 95


def test_a_frame_larger_than_all_room_gets_it_when_nothing_else_is_held() -> None:
    admission, soon = admission_of(100)
    admission.charge(1)
    huge = Frame()
    assert not admission.reserve(500, huge)
    admission.release(1)
    soon.come()
    assert huge.granted == [500]
    assert admission.is_full


def test_who_waits_only_for_the_limit_goes_on_below_it() -> None:
    admission, soon = admission_of(100)
    admission.charge(150)
    waiting = Frame()
    admission.wait(waiting)
    admission.release(50)
    soon.come()
    assert waiting.granted == []
    admission.release(1)
    soon.come()
    assert waiting.granted == [0]


def test_who_gives_up_makes_way() -> None:
    admission, soon = admission_of(100)
    admission.charge(50)
    gone, patient = Frame(), Frame()
    assert not admission.reserve(90, gone)
    assert not admission.reserve(40, patient)
    admission.forget(gone)
    soon.come()
    assert (gone.granted, patient.granted) == ([], [40])


@given(st.lists(st.tuples(st.integers(1, 120), st.booleans()), max_size=40))
@settings(max_examples=100, deadline=None)
def test_reserved_room_stays_within_the_limit_and_everyone_gets_some(steps: list[tuple[int, bool]]) -> None:
    admission, soon = admission_of(100)
    held: list[int] = []
    waiting: list[Frame] = []

    def collect() -> None:
        soon.come()
        for frame in list(waiting):
            if frame.granted:
                held.append(frame.granted[0])
                waiting.remove(frame)

    for size, releases in steps:
        frame = Frame()
        if admission.reserve(size, frame):
            held.append(size)
        else:
            waiting.append(frame)
        if releases and held:
            admission.release(held.pop(0))
        collect()
        assert admission.in_flight_bytes == sum(held)
        assert sum(held) <= 100 or len(held) == 1
    while held:
        admission.release(held.pop(0))
        collect()
    assert not waiting
    assert admission.in_flight_bytes == 0
