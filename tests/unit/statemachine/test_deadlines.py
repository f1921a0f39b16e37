from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.statemachine.deadlines import SPARE_ENTRIES, Deadlines

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.integers(0, 5), st.integers(0, 50)), max_size=60
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_what_is_due_is_what_a_plain_table_says(steps: list[Step]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    table: dict[int, int] = {}
    for action, key, at_ms in steps:
        if action == "set":
            deadlines.set(key, at_ms)
            table[key] = at_ms
        elif action == "cancel":
            deadlines.cancel(key)
            table.pop(key, None)
        else:
            popped = deadlines.pop_due(at_ms)
            assert (popped is None) == (not table or min(table.values()) > at_ms)
            if popped is not None:
                assert popped[1] == min(table.values()) == table.pop(popped[0])
        assert deadlines.next_ms() == min(table.values(), default=None)
        assert len(deadlines) == len(table)


def test_moving_a_deadline_for_ever_takes_no_more_room() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for at_ms in range(1_000):
        deadlines.set(1, at_ms)
        deadlines.set(2, 1_000_000 - at_ms)
    assert len(deadlines._heap) <= 2 * 2 + SPARE_ENTRIES + 1
    assert deadlines.pop_due(2_000_000) == (1, 999)
    assert deadlines.pop_due(2_000_000) == (2, 999_001)
    assert deadlines.pop_due(2_000_000) is None
