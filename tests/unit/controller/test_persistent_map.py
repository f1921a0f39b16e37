import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from distributedlog.controller.persistent_map import Change, PersistentMap, changes, hash32
from distributedlog.model.ids import Uuid

# Hashes are four bytes of the key: numbers that differ only above them collide wholly.
COLLIDING = st.builds(lambda low, high: low + (high << 32), st.integers(0, 40), st.integers(0, 2))
KEYS = COLLIDING | st.integers(0, 2**32 - 1)
EDITS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3)), max_size=60)
bounded = settings(max_examples=100, deadline=None)


def edited(before: PersistentMap[int, int], edits: list[tuple[int, int | None]]) -> PersistentMap[int, int]:
    for key, value in edits:
        before = before.delete(key) if value is None else before.set(key, value)
    return before


def as_dict(edits: list[tuple[int, int | None]]) -> dict[int, int]:
    plain: dict[int, int] = {}
    for key, value in edits:
        if value is None:
            plain.pop(key, None)
        else:
            plain[key] = value
    return plain


@bounded
@given(EDITS)
def test_it_holds_what_a_dict_would(edits: list[tuple[int, int | None]]) -> None:
    made = edited(PersistentMap(), edits)
    plain = as_dict(edits)
    assert dict(made.items()) == plain
    assert len(made) == len(plain)
    assert set(made) == set(plain)
    assert all(made[key] == value and key in made for key, value in plain.items())
    assert made.get(2**40, "none") == plain.get(2**40, "none")


@bounded
@given(EDITS, EDITS)
def test_an_old_map_is_not_touched_by_a_new_one(
    first: list[tuple[int, int | None]], second: list[tuple[int, int | None]]
) -> None:
    old = edited(PersistentMap(), first)
    edited(old, second)
    assert dict(old.items()) == as_dict(first)


@bounded
@given(EDITS, EDITS)
def test_changes_are_exactly_what_differs(
    first: list[tuple[int, int | None]], second: list[tuple[int, int | None]]
) -> None:
    old = edited(PersistentMap(), first)
    new = edited(old, second)
    before, after = dict(old.items()), dict(new.items())
    expected = {
        Change(key, before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }
    found = list(changes(old, new))
    assert set(found) == expected
    assert len(found) == len(expected)
    assert (old == new) == (before == after)


@bounded
@given(EDITS)
def test_equal_contents_are_equal_however_they_came_about(edits: list[tuple[int, int | None]]) -> None:
    plain = as_dict(edits)
    assert edited(PersistentMap(), edits) == PersistentMap(plain)
    assert PersistentMap(plain) == PersistentMap(dict(reversed(plain.items())))
    assert PersistentMap(plain) != PersistentMap({**plain, -1: 0})


def test_a_change_among_many_shares_all_the_rest() -> None:
    class Counted:
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return self is other

        __hash__ = object.__hash__

    old = PersistentMap({number: Counted() for number in range(10_000)})
    new = old.set(1234, Counted())
    assert [change.key for change in changes(old, new)] == [1234]
    assert Counted.compared == 1


def test_setting_what_is_there_already_gives_the_same_map() -> None:
    value = Uuid(bytes(16))
    made = PersistentMap({"a": value})
    assert made.set("a", value) is made
    assert made.delete("b") is made


def test_the_order_is_the_same_in_every_process() -> None:
    program = (
        "from distributedlog.controller.persistent_map import PersistentMap;"
        "print(list(PersistentMap({(n, str(n)): n for n in range(50)})))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_only_plain_values_are_keys() -> None:
    with pytest.raises(TypeError, match="float"):
        hash32(1.5)
