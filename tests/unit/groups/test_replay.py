"""A coordinator that starts at any point of the log has what was there at that point, compacted or not."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.groups.classic.group import GroupState, make_group_metadata_record
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.records import GroupRecord
from tests.unit.groups.exploration import steps
from tests.unit.groups.stage import GROUP, MemoryLog, Stage, Stored, decoded

SOAK = os.environ.get("DLOG_SOAK") == "1"
MEMBERS_MAX = 3
WALKS = st.lists(st.integers(0, 1_000), max_size=60)
Durable = list[GroupRecord]


def walk(choices: list[int]) -> tuple[Stage, dict[int, Durable]]:
    """Somewhere, step by step; and what was durable after each entry of the log."""
    stage = Stage()
    known: dict[int, Durable] = {0: []}
    for number, choice in enumerate(choices):
        if choice % 4 == 0:
            group = stage.machine.groups.get(GROUP)
            members = [] if group is None else list(group.members)
            who = members[choice % len(members)] if members and choice % 3 else ""
            generation = -1 if group is None or not who else group.generation
            stage.commit(number, who, generation, partition=choice % 3)
        else:
            possible = list(steps(stage, MEMBERS_MAX))
            possible[choice % len(possible)][1](stage)
        known[stage.log.next_offset()] = list(stage.machine.durable_records())
    assert known.keys() == set(range(stage.log.next_offset() + 1)), "a step is one entry at most"
    return stage, known


def replayed(stage: Stage, entries: list[Stored]) -> GroupMachine:
    machine = stage.new_machine()
    for offset, entry in enumerate(entries):
        machine.replay(decoded(entry), offset)
    return machine


def as_set(records: Durable) -> set[str]:
    """Compaction may bring them in another order."""
    return {repr(record) for record in records}


@settings(max_examples=400 if SOAK else 40, deadline=None)
@given(WALKS)
def test_after_a_restart_at_any_point_of_the_log_what_is_durable_is_what_was(choices: list[int]) -> None:
    stage, known = walk(choices)
    entries = stage.log.entries
    for length, durable in known.items():
        assert list(replayed(stage, entries[:length]).durable_records()) == durable
        other = Stage()
        other.log = MemoryLog()
        other.log.entries = list(entries[:length])
        other.failover()
        for group in other.machine.groups.values():
            assert group.state in (GroupState.STABLE, GroupState.EMPTY)
            assert make_group_metadata_record(group).value == other.machine.stored[group.group_id]
        assert list(other.machine.durable_records()) == durable, "taking over changes nothing"


def compacted(entries: list[Stored], *, keeps_tombstones: bool) -> list[Stored]:
    """Returns the last record of each key; of those without a value none, once their time is over."""
    last: dict[bytes, tuple[int, int]] = {}
    for number, entry in enumerate(entries):
        for at, (key, _) in enumerate(entry):
            last[key] = (number, at)
    return [
        [
            (key, value)
            for at, (key, value) in enumerate(entry)
            if last[key] == (number, at) and (value is not None or keeps_tombstones)
        ]
        for number, entry in enumerate(entries)
    ]


@settings(max_examples=400 if SOAK else 40, deadline=None)
@given(WALKS, st.integers(0, 60), st.booleans())
def test_a_log_that_was_compacted_up_to_anywhere_says_the_same(
    choices: list[int], clean_to: int, keeps_tombstones: bool
) -> None:
    stage, _ = walk(choices)
    entries = stage.log.entries
    head = compacted(entries[:clean_to], keeps_tombstones=keeps_tombstones)
    machine = replayed(stage, head + entries[clean_to:])
    assert as_set(list(machine.durable_records())) == as_set(list(stage.machine.durable_records()))
