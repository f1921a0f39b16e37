"""The check of read-process-write, with histories of one input partition and one output partition."""

from tests.reliability.checks.transformed import not_transformed
from tests.reliability.history import History, Place, Seen
from tests.reliability.programs.transactions.topics import made_of, output_of

SOURCE, TARGET = Place("in", 0), Place(output_of("in"), 0)


def found(outputs: list[str], committed: int) -> list[str]:
    history = History()
    history.final = {
        SOURCE: [Seen(0, "a"), Seen(1, "b"), Seen(3, "c")],  # a marker or an aborted record at 2
        TARGET: [Seen(offset, value) for offset, value in enumerate(outputs)],
    }
    return list(not_transformed(history, {SOURCE: committed}, TARGET.topic, made_of))


def test_one_output_for_each_input_below_the_committed_offset_is_sound() -> None:
    assert not found(["t-1:a", "t-1:b", "t-2:c"], 4)
    assert not found(["t-1:b", "t-1:a"], 2)
    assert not found([], 0)


def test_a_missing_output_is_found() -> None:
    (text,) = found(["t-1:a"], 3)
    assert text == "in-0 at 1: b is passed, and nothing is made of it"


def test_an_output_made_twice_or_beyond_the_committed_offset_is_found() -> None:
    assert "a is not passed, or made more than once" in found(["t-1:a", "t-2:a", "t-1:b"], 2)[0]
    assert "c is not passed" in found(["t-1:a", "t-1:b", "t-1:c"], 3)[0]


def test_an_output_of_nothing_is_found() -> None:
    (text,) = found(["t-1:a", "t-1:z"], 1)
    assert text.endswith("in-booked-0 at 1: t-1:z")
