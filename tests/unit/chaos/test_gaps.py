"""Gaps are those between successes of one client; nothing else ends one."""

from tests.chaos.gaps import describe_gaps, gaps, histogram
from tests.reliability.history import History, Outcome, Place, Poll, Seen, Send

PLACE = Place("orders", 0)
SECOND_NS = 1_000_000_000


def sent(process: str, at_s: float, outcome: Outcome = Outcome.OK) -> Send:
    at_ns = int(at_s * SECOND_NS)
    return Send(process, PLACE, f"{process}-{at_s}", at_ns, at_ns, outcome, None)


def polled(process: str, at_s: float, *values: str) -> Poll:
    at_ns = int(at_s * SECOND_NS)
    return Poll(process, PLACE, 1, tuple(Seen(0, value) for value in values), at_ns, at_ns)


def test_only_successes_of_the_same_client_end_a_gap() -> None:
    history = History(
        sends=[
            sent("p", 0.0),
            sent("p", 0.1),
            sent("q", 0.5),
            sent("p", 1.0, Outcome.UNKNOWN),
            sent("p", 3.1),
        ],
        polls=[polled("c", 0.0, "x"), polled("c", 1.0), polled("c", 9.0, "y")],
    )
    assert gaps(history) == {"c": [9.0], "p": [3.0], "q": []}


def test_each_gap_is_counted_once() -> None:
    assert histogram([0.5, 0.99, 1.0, 5.0, 100.0]) == [2, 1, 0, 1, 0, 0, 1]


def test_the_longest_gap_of_each_client_is_told() -> None:
    told = describe_gaps(History(sends=[sent("p", 0.0), sent("p", 3.0), sent("p", 4.0)]))
    assert "1 clients: 2" in told
    assert "p 3.0 s" in told
    assert "none" in describe_gaps(History())
