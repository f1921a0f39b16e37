from typing import Any

import pytest

from distributedlog.pipelines.health import HealthLimits, judge
from distributedlog.pipelines.status import FlowLag, PipelineStatus, fold

NOW_MS = 1_000_000
NONE = HealthLimits()


def run(number: int, state: str, time_ms: int = NOW_MS, **fields: Any) -> dict[str, Any]:
    return {"type": "run", "run": number, "state": state, "time_ms": time_ms, **fields}


def completed(time_ms: int = NOW_MS) -> PipelineStatus:
    return fold([run(1, "started", time_ms), run(1, "completed", time_ms)])


def problems(status: PipelineStatus, lag: FlowLag | None = None, limits: HealthLimits = NONE) -> list[str]:
    return judge(status, lag, limits, now_ms=NOW_MS)


def test_a_run_that_completed_or_goes_on_is_well() -> None:
    assert problems(completed()) == []
    assert problems(fold([run(1, "started")], is_running=True)) == []


def test_a_run_that_was_not_made_because_nothing_was_new_is_no_silence() -> None:
    limits = HealthLimits(silent_seconds_max=10)
    long_ago, idle = NOW_MS - 60_000, {"type": "idle", "run": 1, "time_ms": NOW_MS - 5_000}
    status = fold([run(1, "started", long_ago), run(1, "completed", long_ago)])
    assert len(problems(status, limits=limits)) == 1
    status = fold([idle], onto=status)
    assert problems(status, limits=limits) == []
    status = fold([run(2, "started")], onto=status, is_running=True)
    assert problems(status, limits=limits) == [], "the run that follows has only begun"


def test_what_never_ran_failed_or_died_is_not() -> None:
    assert problems(fold([])) == ["it has never run"]
    failed = [run(1, "started"), run(1, "failed", error="why")]
    assert problems(fold(failed)) == ["run 1 failed: why"]
    again = [*failed, run(2, "started"), run(2, "failed", error="why")]
    assert problems(fold(again)) == ["run 2 failed, 2 in a row: why"]
    assert "died in run 1" in problems(fold([run(1, "started")]))[0]


@pytest.mark.parametrize(("ended_ms", "is_well"), [(NOW_MS - 60_000, True), (NOW_MS - 60_001, False)])
def test_silence_is_wrong_when_it_lasts(ended_ms: int, is_well: bool) -> None:
    limits = HealthLimits(silent_seconds_max=60.0)
    assert (problems(completed(ended_ms), limits=limits) == []) is is_well
    assert problems(completed(ended_ms)) == []


def test_a_first_run_that_never_ends_is_silence_too() -> None:
    hangs = fold([run(1, "started", NOW_MS - 70_000)], is_running=True)
    assert problems(hangs, limits=HealthLimits(silent_seconds_max=60.0)) != []


def test_distance_is_wrong_beyond_its_limits() -> None:
    limits = HealthLimits(records_max=100, behind_seconds_max=30.0)
    assert problems(completed(), FlowLag(100, 30.0), limits) == []
    assert problems(completed(), FlowLag(101, 31.0), limits) == [
        "it is 101 records behind, more than 100",
        "it is 31 s behind, more than 30 s",
    ]
    assert problems(completed(), FlowLag(10_000, 9_999.0)) == []


def test_a_distance_that_is_not_known_is_wrong_if_it_matters() -> None:
    limits = HealthLimits(behind_seconds_max=30.0)
    assert "no broker answers" in problems(completed(), None, limits)[0]
    assert "not known" in problems(completed(), FlowLag(5, None), limits)[0]
    assert problems(completed(), None) == []
