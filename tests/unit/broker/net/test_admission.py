"""How much is taken on, and who waits for whom."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.admission import SHARE, SMALL_FRAME_BYTES_MAX, Admission, ServerLimits
from distributedlog.model.config import KIB, MIB
from distributedlog.settings.node_settings import NodeSettings


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
    def __init__(self, peer_host: str = "a") -> None:
        self.peer_host = peer_host
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
    assert "max.connections.per.ip" in str(admission.find_excess("a"))
    assert admission.find_excess("b") is None
    admission.enter("b")
    assert "max.connections)" in str(admission.find_excess("c"))
    admission.leave("a")
    assert admission.find_excess("a") is None
    admission.leave("a")
    admission.leave("b")
    assert admission.connections == 0
    assert not admission._per_host, "an address without connections is forgotten"


def test_a_frame_that_would_take_more_than_half_of_all_room_is_refused_when_it_is_begun() -> None:
    assert ServerLimits.of(NodeSettings(queued_bytes_max=64 * MIB)).frame_bytes_max == 32 * MIB
    assert ServerLimits.of(NodeSettings()).frame_bytes_max == NodeSettings().socket_request_bytes_max
    tight = NodeSettings(queued_bytes_max=2 * KIB, queued_bytes_per_connection_max=2 * KIB)
    assert ServerLimits.of(tight).frame_bytes_max == SMALL_FRAME_BYTES_MAX, "these need no room"


def test_room_is_given_in_the_order_of_asking_and_never_in_the_midst_of_something_else() -> None:
    admission, soon = admission_of(100)
    first, second, third = Frame("a"), Frame("b"), Frame("c")
    assert admission.reserve(80, first)
    assert not admission.reserve(90, second)
    assert not admission.reserve(5, third), "a small one does not overtake"
    admission.unreserve("a", 80)
    assert second.granted == []
    soon.come()
    assert (second.granted, third.granted) == ([90], [5])
    assert admission.in_flight_bytes == 95


def test_an_address_that_fills_its_share_waits_and_nobody_else_does() -> None:
    admission, soon = admission_of(100)
    claims = [Frame("enemy") for _ in range(50)]
    assert [admission.reserve(10, claim) for claim in claims] == [True] * 2 + [False] * 48
    assert admission.reserve(60, Frame("good"))
    admission.unreserve("enemy", 10)
    soon.come()
    assert sum(len(claim.granted) for claim in claims) == 1, "its line moves as its own room comes back"
    assert admission.reserve(20, Frame("other"))
    assert admission.in_flight_bytes == 100


def test_an_address_always_gets_one_frame_though_it_be_larger_than_its_share() -> None:
    admission, _ = admission_of(100)
    assert admission.reserve(60, Frame("a"))
    assert not admission.reserve(1, Frame("a"))
    assert admission.reserve(40, Frame("b"))


def test_addresses_that_wait_come_in_turn() -> None:
    admission, soon = admission_of(100)
    assert admission.reserve(100, Frame("full"))
    crowd, single = [Frame("crowd") for _ in range(10)], Frame("single")
    for frame in [*crowd, single]:
        assert not admission.reserve(10, frame)
    admission.unreserve("full", 100)
    soon.come()
    assert single.granted == [10]
    assert [bool(frame.granted) for frame in crowd] == [True] * 2 + [False] * 8


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


def test_who_waits_only_to_go_on_does_not_wait_for_the_claims_of_its_address() -> None:
    admission, soon = admission_of(100)
    claim, goer = Frame("a"), Frame("a")
    assert admission.reserve(20, Frame("a"))
    assert not admission.reserve(20, claim), "its share is full"
    admission.charge(80)
    admission.wait(goer)
    admission.release(80)
    soon.come()
    assert (claim.granted, goer.granted) == ([], [0])


def test_who_gives_up_makes_way() -> None:
    admission, soon = admission_of(100)
    admission.charge(50)
    gone, patient = Frame("a"), Frame("b")
    assert not admission.reserve(90, gone)
    assert not admission.reserve(40, patient)
    admission.forget(gone)
    soon.come()
    assert (gone.granted, patient.granted) == ([], [40])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.booleans()), max_size=40))
@settings(max_examples=100, deadline=None)
def test_reserved_room_stays_within_the_limit_and_everyone_gets_some(
    steps: list[tuple[str, int, bool]],
) -> None:
    admission, soon = admission_of(100)
    held: list[tuple[str, int]] = []
    waiting: list[Frame] = []

    def collect() -> None:
        soon.come()
        for frame in list(waiting):
            if frame.granted:
                held.append((frame.peer_host, frame.granted[0]))
                waiting.remove(frame)

    for host, size, releases in steps:
        frame = Frame(host)
        if admission.reserve(size, frame):
            held.append((host, size))
        else:
            waiting.append(frame)
        if releases and held:
            admission.unreserve(*held.pop(0))
        collect()
        assert admission.in_flight_bytes == sum(size for _, size in held) <= 100
        for host in "abc":
            of_host = [size for holder, size in held if holder == host]
            assert sum(of_host) <= 100 // SHARE or len(of_host) == 1
    while held:
        admission.unreserve(*held.pop(0))
        collect()
    assert not waiting
    assert admission.in_flight_bytes == 0
    assert not admission._reserved_bytes, "an address that holds nothing is forgotten"
