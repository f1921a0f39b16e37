"""What compares the rows of `once_kills` sees each kind of mistake."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.event_log import Speculation, speculation
from tests.spark.once_proof import Row, compare, expected_rows

SOURCE = [Row(0, 0, "-", "a"), Row(0, 1, "-", "b"), Row(1, 0, "-", "a")]
BATCHES = [{"0": 1}, {"0": 2, "1": 1}]
FOUND = [Row(0, 0, "a 1 0", "a"), Row(0, 2, "a 2 0", "a"), Row(1, 0, "b 1 1", "b")]


def test_the_rows_of_a_batch_are_the_counts_at_its_end() -> None:
    expected = expected_rows(SOURCE, BATCHES)
    assert expected == [Counter(["a 1 0"]), Counter(["a 2 0", "b 1 1"])]
    compare(expected, FOUND, [each._replace(key="") for each in FOUND])


@pytest.mark.parametrize(
    ("found", "seen", "answer"),
    [
        (FOUND[1:], [], "1 rows are missing"),
        ([*FOUND, Row(1, 3, "b 1 1", "b")], [], "1 rows are too many"),
        ([FOUND[1], FOUND[0], FOUND[2]], [], "not in order"),
        (FOUND, [Row(0, 1, "a 1 0")], "seen that are not there"),
        (FOUND, [Row(0, 0, "a 1 0")] * 2, "saw a row twice"),
    ],
)
def test_what_is_wrong_is_said(found: list[Row], seen: list[Row], answer: str) -> None:
    with pytest.raises(AssertionError, match=answer):
        compare(expected_rows(SOURCE, BATCHES), found, seen)


def test_attempts_that_ran_beside_others_are_counted_also_of_a_driver_that_was_killed(tmp_path: Path) -> None:
    speculative, plain = {"Speculative": True}, {"Speculative": False}
    events = [
        {"Event": "SparkListenerApplicationStart"},
        {"Event": "SparkListenerTaskStart", "Task Info": plain},
        {"Event": "SparkListenerTaskStart", "Task Info": speculative},
        {"Event": "SparkListenerTaskEnd", "Task Info": plain, "Task End Reason": {"Reason": "TaskKilled"}},
        {"Event": "SparkListenerTaskEnd", "Task Info": speculative, "Task End Reason": {"Reason": "Success"}},
        {"Event": "SparkListenerTaskStart", "Task Info": speculative},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in events)
    (tmp_path / "app-1").write_text(lines)
    (tmp_path / "app-2.inprogress").write_text(lines + '{"Event": "SparkLis')
    (tmp_path / ".app-1.crc").write_bytes(b"\xff")
    assert speculation(tmp_path) == Speculation(begun=4, won=2)
