"""Each finding is made by a history that has it, and by none that is good."""

import io
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from tests.reliability.checker import ALWAYS, GROUPS, IDEMPOTENT, WHOLE, check, describe, figures
from tests.reliability.history import (
    LATEST,
    Ended,
    History,
    Outcome,
    Owned,
    Place,
    Poll,
    Position,
    Seen,
    Send,
)
from tests.reliability.journal import Gathered, Journal

PLACE = Place("orders", 0)
EVERY = {**ALWAYS, **IDEMPOTENT, **WHOLE, **GROUPS}


def good() -> History:
    """Three producers, one of them with transactions, and two consumers; all of it as it should be."""
    clock = count(0, 10)

    def send(process: str, value: str, offset: int | None, **more: object) -> Send:
        outcome = more.get("outcome", Outcome.OK)
        assert isinstance(outcome, Outcome)
        transaction = more.get("transaction")
        assert transaction is None or isinstance(transaction, str)
        return Send(process, PLACE, value, next(clock), next(clock), outcome, offset, transaction)

    return History(
        sends=[
            send("p1", "a", 0),
            send("p1", "b", 1),
            send("p2", "c", 2, transaction="t1"),
            send("p2", "d", 3, transaction="t1"),
            send("p3", "refused", None, outcome=Outcome.FAIL),
            send("p1", "perhaps", None, outcome=Outcome.UNKNOWN),
            send("p1", "never", None, outcome=Outcome.UNKNOWN),
            send("p1", "e", None),
            Send("p2", PLACE, "gone", 320, 330, Outcome.OK, None, "t2"),
        ],
        polls=[
            Poll("c1", PLACE, 1, (Seen(0, "a"), Seen(1, "b")), 200, 210),
            Poll("c1", PLACE, 1, (), 220, 230),
            Poll("c1", PLACE, 1, (Seen(2, "c"), Seen(3, "d")), 240, 250, "t3"),
            Poll("c1", PLACE, 2, (Seen(0, "a"),), 260, 270),
        ],
        positions=[
            Position("c1", PLACE, LATEST, 2, 41, 42),
            Position("c1", PLACE, LATEST, 6, 300, 310),
            Position("c2", PLACE, LATEST, 5, 200, 201),
            Position("c1", PLACE, "committed of g", 0, 400, 401),
        ],
        owned=[Owned("g", 1, "c1", PLACE), Owned("g", 2, "c2", PLACE), Owned("h", 1, "c2", PLACE)],
        ended=[Ended("t1", Outcome.OK), Ended("t2", Outcome.FAIL), Ended("t3", Outcome.OK)],
        final={
            PLACE: [Seen(0, "a"), Seen(1, "b"), Seen(2, "c"), Seen(3, "d"), Seen(4, "perhaps"), Seen(5, "e")]
        },
    )


def ends_of(history: History) -> list[Seen]:
    return list(history.final[PLACE])


def an_offset_with_two_values(history: History) -> History:
    return replace(history, polls=[*history.polls, Poll("c2", PLACE, 1, (Seen(1, "x"),), 500, 510)])


def an_acknowledgement_for_another_offset(history: History) -> History:
    sends = [send._replace(offset=0) if send.value == "b" else send for send in history.sends]
    return replace(history, sends=sends)


def a_value_at_two_offsets(history: History) -> History:
    return replace(history, final={PLACE: [*ends_of(history), Seen(6, "e")]})


def an_acknowledged_value_that_nobody_read(history: History) -> History:
    polls = [
        poll._replace(records=tuple(seen for seen in poll.records if seen.value != "b"))
        for poll in history.polls
    ]
    return replace(
        history, polls=polls, final={PLACE: [seen for seen in ends_of(history) if seen.value != "b"]}
    )


def an_acknowledged_value_that_is_gone_at_the_end(history: History) -> History:
    return replace(history, final={PLACE: ends_of(history)[:-1]})


def a_refused_value_that_was_read(history: History) -> History:
    return replace(history, final={PLACE: [*ends_of(history), Seen(6, "refused")]})


def a_value_of_an_aborted_transaction_that_was_read(history: History) -> History:
    return replace(history, polls=[*history.polls, Poll("c2", PLACE, 1, (Seen(6, "gone"),), 500, 510)])


def half_a_transaction(history: History) -> History:
    more = [
        Send("p3", PLACE, value, at, transaction="t9") for at, value in ((900, "half"), (910, "other half"))
    ]
    return replace(
        history, sends=[*history.sends, *more], final={PLACE: [*ends_of(history), Seen(6, "half")]}
    )


def a_transaction_that_reads_itself(history: History) -> History:
    return replace(history, polls=[*history.polls, Poll("c2", PLACE, 1, (Seen(2, "c"),), 500, 510, "t1")])


def two_transactions_that_read_each_other(history: History) -> History:
    sends = [*history.sends, Send("p3", PLACE, "f", 600, 610, Outcome.OK, 6, "t3")]
    polls = [*history.polls, Poll("c2", PLACE, 1, (Seen(6, "f"),), 500, 510, "t1")]
    return replace(history, sends=sends, polls=polls, final={PLACE: [*ends_of(history), Seen(6, "f")]})


def a_consumer_that_jumps(history: History) -> History:
    polls = [*history.polls, Poll("c1", PLACE, 2, (Seen(3, "d"),), 500, 510)]
    return replace(history, polls=polls)


def a_consumer_that_goes_back(history: History) -> History:
    polls = [*history.polls, Poll("c1", PLACE, 1, (Seen(1, "b"),), 500, 510)]
    return replace(history, polls=polls)


def a_later_send_that_stands_before(history: History) -> History:
    return replace(
        history, sends=[*history.sends, Send("p1", PLACE, "perhaps again", 5)],
        final={PLACE: [*ends_of(history), Seen(6, "perhaps again")]},
    )  # fmt: skip


def an_end_that_went_back(history: History) -> History:
    return replace(history, positions=[*history.positions, Position("c2", PLACE, LATEST, 4, 202, 203)])


def a_committed_offset_that_went_back(history: History) -> History:
    told = [
        Position("c1", PLACE, "committed of g", offset, at, at + 1) for offset, at in ((4, 500), (3, 510))
    ]
    return replace(history, positions=[*history.positions, *told])


def a_committed_offset_that_another_member_took_back(history: History) -> History:
    told = [
        Position(member, PLACE, "committed of g", offset, at, at + 1)
        for member, offset, at in (("c1", 4, 500), ("c2", 3, 510))
    ]
    return replace(history, positions=[*history.positions, *told])


def a_value_that_was_read_and_is_gone(history: History) -> History:
    sends = [*history.sends, Send("p3", PLACE, "seen once", 600)]
    poll = Poll("c2", PLACE, 1, (Seen(6, "seen once"),), 700, 710)
    return replace(history, sends=sends, polls=[*history.polls, poll])


def an_end_before_what_was_acknowledged(history: History) -> History:
    return replace(history, positions=[*history.positions, Position("c3", PLACE, LATEST, 3, 200, 201)])


def two_members_with_one_partition(history: History) -> History:
    return replace(history, owned=[*history.owned, Owned("g", 2, "c1", PLACE)])


def a_missing_offset(history: History) -> History:
    sends = [*history.sends, Send("p3", PLACE, "far", 600, 610, Outcome.OK, 8)]
    return replace(history, sends=sends, final={PLACE: [*ends_of(history), Seen(8, "far")]})


def a_value_from_nowhere(history: History) -> History:
    return replace(history, final={PLACE: [*ends_of(history), Seen(6, "from nowhere")]})


Story = Callable[[History], History]
STORIES: list[tuple[Story, set[str]]] = [
    (an_offset_with_two_values, {"inconsistent offsets", "phantom", "read then gone"}),
    (an_acknowledgement_for_another_offset, {"inconsistent offsets", "duplicate"}),
    (a_value_at_two_offsets, {"duplicate"}),
    (an_acknowledged_value_that_nobody_read, {"lost write", "unseen", "offset gap"}),
    (an_acknowledged_value_that_is_gone_at_the_end, {"unseen"}),
    (a_refused_value_that_was_read, {"aborted read"}),
    (a_value_of_an_aborted_transaction_that_was_read, {"aborted read", "read then gone"}),
    (half_a_transaction, {"torn transaction"}),
    (a_transaction_that_reads_itself, {"own uncommitted read"}),
    (two_transactions_that_read_each_other, {"circular flow"}),
    (a_consumer_that_jumps, {"poll skip"}),
    (a_consumer_that_goes_back, {"non-monotonic poll"}),
    (a_later_send_that_stands_before, {"non-monotonic send"}),
    (an_end_that_went_back, {"offset regression"}),
    (a_committed_offset_that_went_back, {"offset regression", "group offset regression"}),
    (a_committed_offset_that_another_member_took_back, {"group offset regression"}),
    (a_value_that_was_read_and_is_gone, {"read then gone"}),
    (an_end_before_what_was_acknowledged, {"stale end"}),
    (two_members_with_one_partition, {"two owners"}),
    (a_missing_offset, {"offset gap"}),
    (a_value_from_nowhere, {"phantom"}),
]


def test_nothing_is_found_in_a_good_history() -> None:
    assert check(good(), EVERY) == []
    assert describe([]) == "nothing is wrong"
    assert figures(good()) == (
        "9 sends (6 ok, 1 fail, 2 unknown), 3 transactions (2 ok, 1 fail, 0 unknown), 5 records polled, "
        "4 positions told, 6 records in the final read"
    )


@pytest.mark.parametrize(("story", "names"), STORIES, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_named(story: Story, names: set[str]) -> None:
    findings = check(story(good()), EVERY)
    assert {finding.name for finding in findings} == names
    assert all(name in describe(findings) for name in names)


def test_every_finding_has_a_story() -> None:
    assert set(EVERY) == {name for _, names in STORIES for name in names}


def test_an_aborted_transaction_need_not_be_seen() -> None:
    history = good()
    assert check(replace(history, ended=[]), {"unseen": ALWAYS["unseen"]})
    assert not check(history, {"unseen": ALWAYS["unseen"]})


def test_a_journal_becomes_the_history_it_tells() -> None:
    out = io.StringIO()
    journal = Journal("p1", out)
    journal.send(PLACE, "a")
    journal.send(PLACE, "b", "t")
    journal.send(PLACE, "killed before it ended")
    journal.sent("b", Outcome.OK, 1)
    journal.sent("a", Outcome.FAIL)
    journal.poll(PLACE, 3, [Seen(1, "b")], 17, "t")
    journal.told(PLACE, LATEST, 2, 18)
    journal.owned("g", 4, PLACE)
    journal.ended("t", Outcome.OK)
    gathered = Gathered()
    for line in out.getvalue().splitlines():
        gathered.add(line)
    history = gathered.history()
    assert [(send.value, send.outcome, send.offset, send.transaction) for send in history.sends] == [
        ("b", Outcome.OK, 1, "t"),
        ("a", Outcome.FAIL, None, None),
        ("killed before it ended", Outcome.UNKNOWN, None, None),
    ]
    (poll,) = history.polls
    assert poll[:5] == ("p1", PLACE, 3, (Seen(1, "b"),), 17)
    assert [(told.what, told.offset, told.invoked_ns) for told in history.positions] == [(LATEST, 2, 18)]
    assert history.owned == [Owned("g", 4, "p1", PLACE)]
    assert history.ended == [Ended("t", Outcome.OK)]
    assert (gathered.counts["send"], gathered.counts[Outcome.OK], gathered.counts["poll"]) == (3, 1, 1)
