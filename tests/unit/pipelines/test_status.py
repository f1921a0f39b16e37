from typing import Any

from distributedlog.pipelines.status import LAG_SAMPLES_MAX, fold, lag_of


def run(number: int, state: str, time_ms: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "run", "run": number, "state": state, "time_ms": time_ms, **fields}


def batch(flow: str, rows: int, rows_total: int, **fields: Any) -> dict[str, Any]:
    usual = {"type": "batch", "time_ms": 5, "run": 1, "flow": flow, "batch": 0, "milliseconds": 100}
    return {**usual, "rows": rows, "rows_total": rows_total, **fields}


def test_before_the_first_run_nothing_is_wrong() -> None:
    status = fold([])
    assert (status.state, status.runs, status.rows, status.positions()) == ("never ran", 0, 0, {})


def test_it_is_idle_from_a_look_that_found_nothing_to_the_next_run() -> None:
    status = fold([run(1, "started", 1), run(1, "completed", 2)])
    assert not status.is_idle
    status = fold([{"type": "idle", "run": 1, "time_ms": 3}], onto=status)
    assert (status.is_idle, status.state, status.runs, status.looked_ms) == (True, "completed", 1, 3)
    status = fold([run(2, "started", 4)], onto=status, is_running=True)
    assert not status.is_idle
    status = fold([run(2, "completed", 5)], onto=status)
    assert not status.is_idle


def test_rows_between_flows_are_not_counted_twice() -> None:
    events = [
        run(1, "started"),
        batch("raw", 10, 10, positions={"orders": {"0": 10}}),
        batch("clean", 9, 9, positions={}),
        batch("raw", 5, 15, positions={"orders": {"0": 15}}),
        run(1, "completed", 900, milliseconds=800, rows=15),
    ]
    status = fold(events)
    assert status.rows == 15
    assert status.state == "completed"
    assert status.flows["raw"].batches == 2
    assert status.flows["raw"].rows_last == 5
    assert status.flows["clean"].rows == 9
    assert status.positions() == {"orders": {0: 15}}


def test_a_total_outlives_the_lines_it_was_made_of() -> None:
    assert fold([batch("raw", 5, 1_005, positions={"orders": {"0": 1_005}})]).rows == 1_005


def test_an_error_is_shown_until_a_run_completes() -> None:
    failing = [
        run(1, "started"),
        run(1, "failed", error="no broker"),
        run(2, "started"),
        run(2, "failed", error="still"),
    ]
    status = fold(failing)
    assert (status.state, status.error, status.failures_in_a_row) == ("failed", "still", 2)
    status = fold([*failing, run(3, "started"), run(3, "completed")])
    assert (status.state, status.error, status.failures_in_a_row) == ("completed", None, 0)


def test_a_flows_error_is_forgotten_when_it_completes() -> None:
    failed = {
        "type": "flow",
        "time_ms": 1,
        "run": 1,
        "flow": "raw",
        "state": "failed",
        "error": "lost offsets",
    }
    assert fold([failed]).flows["raw"].error == "lost offsets"
    assert fold([failed, {**failed, "state": "completed", "error": None}]).flows["raw"].error is None


def test_flows_are_shown_as_they_were_in_the_last_run() -> None:
    def flow(name: str, state: str, number: int) -> dict[str, Any]:
        return {"type": "flow", "time_ms": 9, "run": number, "flow": name, "state": state}

    def states(*events: dict[str, Any], is_running: bool = False) -> dict[str, str]:
        status = fold([*first, *events], is_running=is_running)
        return {each.name: each.state for each in status.flows.values()}

    first = [
        run(1, "started"),
        batch("raw", 10, 10),
        batch("clean", 9, 9),
        flow("raw", "completed", 1),
        flow("clean", "completed", 1),
        run(1, "completed"),
    ]
    assert states() == {"raw": "completed", "clean": "completed"}
    refused = (run(2, "started"), run(2, "failed", error="no such table"))
    assert states(*refused) == {"raw": "not run", "clean": "not run"}
    begun = (run(2, "started"), batch("raw", 1, 11))
    assert states(*begun, is_running=True) == {"raw": "running", "clean": "waiting"}
    assert states(*begun) == {"raw": "stopped", "clean": "not run"}
    broken = (*begun, flow("clean", "failed", 2), run(2, "failed", error="clean"))
    assert states(*broken) == {"raw": "stopped", "clean": "failed"}
    assert fold([*first, *broken]).flows["raw"].rows == 11, "what was done before counts on"


def test_a_run_whose_process_died_is_not_running() -> None:
    assert fold([run(1, "started")], is_running=True).state == "running"
    assert fold([run(1, "started")], is_running=False).state == "stopped"


def test_the_flow_that_is_furthest_behind_counts() -> None:
    events = [
        batch("first", 1, 1, positions={"orders": {"0": 10, "1": 3}}),
        batch("second", 1, 1, positions={"orders": {"0": 4, "1": 8}}),
    ]
    assert fold(events).positions() == {"orders": {0: 4, 1: 3}}


def test_lag_is_what_lies_between_and_new_partitions_count_whole() -> None:
    assert lag_of({"orders": {0: 4}}, {"orders": {0: 10, 1: 3}, "others": {0: 99}}) == 9
    assert lag_of({"orders": {0: 12}}, {"orders": {0: 10}}) == 0
    assert lag_of({"orders": {0: 12}}, {}) == 0


def test_folding_goes_on_where_it_was() -> None:
    events = [run(1, "started"), batch("raw", 1, 1), run(1, "completed"), run(2, "started")]
    whole = fold(events, is_running=True)
    piecewise = fold([], is_running=True)
    for event in events:
        piecewise = fold([event], onto=piecewise, is_running=True)
    assert piecewise == whole


def test_rows_written_are_counted_beside_those_read() -> None:
    events = [
        batch("dead", 100, 100, rows_out=2, rows_out_total=2),
        batch("dead", 50, 150, rows_out=1, rows_out_total=3),
    ]
    flow = fold(events).flows["dead"]
    assert (flow.rows, flow.rows_last, flow.rows_out, flow.rows_out_last) == (150, 50, 3, 1)
    before = fold([batch("dead", 100, 100)]).flows["dead"]
    assert before.rows_out == 0, "histories of earlier versions have none"


def test_whom_a_flow_tells_how_far_it_is_is_known() -> None:
    source = {"type": "source", "time_ms": 1, "run": 1, "flow": "raw", "bootstrap": "a:1", "group": "shop"}
    flow = fold([source]).flows["raw"]
    assert (flow.bootstrap, flow.group) == ("a:1", "shop")


def test_what_is_remembered_of_the_lag_is_bounded() -> None:
    samples = ({"type": "lag", "time_ms": at, "records": at} for at in range(LAG_SAMPLES_MAX + 5))
    kept = fold(samples).lag_samples
    assert len(kept) == LAG_SAMPLES_MAX
    assert kept[-1] == (LAG_SAMPLES_MAX + 4, LAG_SAMPLES_MAX + 4)
