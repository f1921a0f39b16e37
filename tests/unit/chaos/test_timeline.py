"""The picture is well-formed, has every fault in it, and counts by the second."""

from xml.etree import ElementTree

from tests.chaos.timeline import Happened, draw_timeline, rates
from tests.reliability.history import History, Outcome, Place, Poll, Seen, Send

PLACE = Place("orders", 0)
SECOND_NS = 1_000_000_000
HISTORY = History(
    sends=[
        Send("p", PLACE, "a", 0, SECOND_NS // 2, Outcome.OK, 0),
        Send("p", PLACE, "b", 0, SECOND_NS, Outcome.OK, 1),
        Send("p", PLACE, "c", 3 * SECOND_NS),
    ],
    polls=[Poll("c", PLACE, 1, (Seen(0, "a"), Seen(1, "b")), 0, 2 * SECOND_NS)],
)


def test_operations_are_counted_in_the_second_in_which_they_ended() -> None:
    found = rates(HISTORY, 0)
    assert found["ok"] == {0: 1, 1: 1}
    assert found["read"] == {2: 2}
    assert found["unknown"] == {3: 1}, "what never ended stands where it began"
    assert not found["fail"]


def test_every_fault_is_in_the_picture() -> None:
    faults = [
        Happened("kill-any", "SIGKILL of <1> & 2", 1.0, 2.0),
        Happened("kill-any", "SIGKILL of 3", 4.0, 5.0),
    ]
    drawn = ElementTree.fromstring(draw_timeline(faults, HISTORY, 0, "a <title>"))
    titles = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["SIGKILL of <1> & 2", "SIGKILL of 3"]
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 4


def test_a_run_without_faults_has_a_picture_too() -> None:
    assert ElementTree.fromstring(draw_timeline([], History(), 0, "nothing")).tag.endswith("svg")
