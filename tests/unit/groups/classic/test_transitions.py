"""Every state of a group times everything that can happen in it.

TRANSITIONS, the table of moves: a pair is there, and happens in the search of `exploration`; or it is in
UNREACHABLE with the reason, and never does.  ANSWERS, the table of requests and deadlines: what is answered
in each state, and which state the group is in then, if it is another.
"""

import os

import pytest

from distributedlog.groups.classic.group import TRANSITIONS, ClassicGroup, GroupEvent, GroupState
from distributedlog.groups.config import GroupConfig
from tests.unit.groups.exploration import Exploration, Pair, explore
from tests.unit.groups.situations import EVENTS, STATES, outcome
from tests.unit.groups.stage import GROUP, NO_DELAY

SOAK = os.environ.get("DLOG_SOAK") == "1"
MEMBERS = 3 if SOAK else 2
SITUATIONS_MAX = 100_000 if SOAK else 400

_BARRIER = "only the barrier closes, and there is one while a group is preparing and no longer"
_MEMBERS = "it has members, and is not deleted before they are gone"
_OVER = "a group that was deleted is in no table any more: nobody can reach it"
UNREACHABLE: dict[Pair, str] = {
    (GroupState.EMPTY, GroupEvent.JOINED): _BARRIER,
    (GroupState.EMPTY, GroupEvent.NOBODY): _BARRIER,
    (GroupState.EMPTY, GroupEvent.ASSIGNED): "nobody leads who could assign",
    (
        GroupState.PREPARING,
        GroupEvent.REBALANCE,
    ): "there is one already: whoever comes or goes takes part in it",
    (GroupState.PREPARING, GroupEvent.ASSIGNED): "SyncGroup is refused until all have joined",
    (GroupState.PREPARING, GroupEvent.DELETED): "only an Empty group is deleted",
    (GroupState.COMPLETING, GroupEvent.JOINED): _BARRIER,
    (GroupState.COMPLETING, GroupEvent.NOBODY): "the last one to go begins a rebalance first",
    (GroupState.COMPLETING, GroupEvent.DELETED): _MEMBERS,
    (GroupState.STABLE, GroupEvent.JOINED): _BARRIER,
    (GroupState.STABLE, GroupEvent.NOBODY): "the last one to go begins a rebalance first",
    (
        GroupState.STABLE,
        GroupEvent.ASSIGNED,
    ): "it has its assignments: the leader's SyncGroup is answered with them",
    (GroupState.STABLE, GroupEvent.DELETED): _MEMBERS,
    **{(GroupState.DEAD, event): _OVER for event in GroupEvent},
}


@pytest.fixture(scope="module")
def found() -> list[Exploration]:
    """Returns what is found with and without an initial delay."""
    return [explore(config, MEMBERS, SITUATIONS_MAX) for config in (NO_DELAY, GroupConfig())]


def test_every_pair_of_state_and_event_is_in_one_of_the_tables() -> None:
    pairs = {(state, event) for state in GroupState for event in GroupEvent}
    assert TRANSITIONS.keys() | UNREACHABLE.keys() == pairs
    assert not TRANSITIONS.keys() & UNREACHABLE.keys()


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_a_pair_happens_or_cannot(found: list[Exploration], state: GroupState, event: GroupEvent) -> None:
    for each in found:
        assert ((state, event) in each.pairs) == ((state, event) in TRANSITIONS), each.pairs.get(
            (state, event)
        )


def test_the_search_came_to_an_end_and_went_everywhere(found: list[Exploration]) -> None:
    for each in found:
        assert each.situations > 100
        assert each.states == set(GroupState)


@pytest.mark.parametrize(("state", "event"), UNREACHABLE, ids=str)
def test_what_is_not_in_the_table_is_a_defect(state: GroupState, event: GroupEvent) -> None:
    group = ClassicGroup(GROUP, 0)
    group.state = state
    with pytest.raises(KeyError):
        group.move(event, 1)


# --- requests and deadlines --------------------------------------------------------------------

CODES = {
    "ok": "NONE",
    "id": "MEMBER_ID_REQUIRED",
    "unknown": "UNKNOWN_MEMBER_ID",
    "illegal": "ILLEGAL_GENERATION",
    "rebalance": "REBALANCE_IN_PROGRESS",
    "inconsistent": "INCONSISTENT_GROUP_PROTOCOL",
    "not found": "GROUP_ID_NOT_FOUND",
    "not empty": "NON_EMPTY_GROUP",
    "subscribed": "GROUP_SUBSCRIBED_TO_TOPIC",
    "dead": "Dead",
    "empty": "Empty",
    "preparing": "PreparingRebalance",
    "completing": "CompletingRebalance",
    "stable": "Stable",
}
SHORT = {"-": "absent", "E": "Empty", "P": "PreparingRebalance", "C": "CompletingRebalance", "S": "Stable"}
ANSWERS = """
                                  | absent    | Empty     | Preparing    | Completing   | Stable
one comes                         | ok > C    | ok > C    | waits        | waits > P    | waits > P
one asks for an id                | id > E    | id        | id           | id           | id
one comes with a strange protocol | ok > C    | ok > C    | inconsistent | inconsistent | inconsistent
one comes with an id of its own   | unknown   | unknown   | unknown      | unknown      | unknown
a joins again                     | unknown   | unknown   | waits        | ok           | waits > P
b joins again                     | unknown   | unknown   | waits        | ok           | ok
b joins with other topics         | unknown   | unknown   | waits        | waits > P    | waits > P
a syncs                           | unknown   | unknown   | rebalance    | ok > S       | ok
b syncs                           | unknown   | unknown   | rebalance    | waits        | ok
b syncs in an old generation      | unknown   | unknown   | illegal      | illegal      | illegal
a stranger syncs                  | unknown   | unknown   | unknown      | unknown      | unknown
b beats                           | unknown   | unknown   | rebalance    | ok           | ok
b beats in an old generation      | unknown   | unknown   | illegal      | illegal      | illegal
a stranger beats                  | unknown   | unknown   | unknown      | unknown      | unknown
b leaves                          | unknown   | unknown   | ok           | ok > P       | ok > P
a stranger leaves                 | unknown   | unknown   | unknown      | unknown      | unknown
b commits                         | not found | unknown   | ok           | rebalance    | ok
b commits in an old generation    | not found | unknown   | illegal      | illegal      | illegal
a stranger commits                | not found | unknown   | unknown      | unknown      | unknown
one without a group commits       | ok        | ok        | unknown      | unknown      | unknown
its positions are read            | none      | none      | none         | none         | none
its position is deleted           | not found | ok        | subscribed   | subscribed   | subscribed
it is described                   | dead      | empty     | preparing    | completing   | stable
it is deleted                     | not found | ok > -    | not empty    | not empty    | not empty
b's session is over               | never set | never set | done         | done > P     | done > P
the time to join is over          | never set | never set | done > C     | never set    | never set
the time to sync is over          | never set | never set | never set    | done > E     | never set
another coordinates               | done      | done      | done > S     | done > S     | done
"""


def answers() -> dict[tuple[str, str], str]:
    """Returns replies by state and event, in full."""
    heading, *rows = ANSWERS.strip("\n").splitlines()
    assert [each.strip() for each in heading.split("|")[1:]] == [
        "absent", "Empty", "Preparing", "Completing", "Stable",
    ]  # fmt: skip
    table = {}
    for row in rows:
        event, *cells = (each.strip() for each in row.split("|"))
        for state, cell in zip(STATES, cells, strict=True):
            answered, _, then = (each.strip() for each in cell.partition(">"))
            table[state, event] = CODES.get(answered, answered) + (f" > {SHORT[then]}" if then else "")
    return table


def test_the_table_of_answers_has_every_event_in_every_state() -> None:
    assert answers().keys() == {(state, event) for state in STATES for event in EVENTS}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_what_is_answered_in_a_state_is_what_the_table_says(state: str, event: str) -> None:
    assert outcome(state, event) == answers()[state, event]
