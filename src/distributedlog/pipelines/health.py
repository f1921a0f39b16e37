"""Is a pipeline well?  Judged by its status, and by how far it is behind.  Nothing here has effects.

| problem                                    | if                                                            |
|--------------------------------------------|---------------------------------------------------------------|
| it has never run                           | there is no run in its history                                |
| a run failed                               | the last one did; how many in a row is said                   |
| its process died                           | the last run has no end, and nobody holds the project's lock  |
| no run has ended for so long               | longer than `silent_seconds_max`, counted from the start of   |
|                                            | one that is going on, where none has ended before; a run that |
|                                            | was not made because nothing was new counts like one          |
| it is so many records, or so long, behind  | more than the limits; or it cannot be known                   |
"""

from dataclasses import dataclass

from distributedlog.pipelines.status import FlowLag, PipelineStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """None: whatever it is."""

    records_max: int | None = None
    behind_seconds_max: float | None = None
    silent_seconds_max: float | None = None


def judge(status: PipelineStatus, lag: FlowLag | None, limits: HealthLimits, *, now_ms: int) -> list[str]:
    """Returns what is wrong; nothing if it is well.  `lag` is None if nobody could be asked."""
    if status.runs == 0:
        return ["it has never run"]
    problems = []
    if status.state == "failed":
        several = f", {status.failures_in_a_row} in a row" if status.failures_in_a_row > 1 else ""
        problems.append(f"run {status.runs} failed{several}: {status.error}")
    elif status.state == "stopped":
        problems.append(f"its process died in run {status.runs}; the next run goes on where it was")
    problems += _silence(status, limits, now_ms)
    problems += _distance(lag, limits)
    return problems


def _silence(status: PipelineStatus, limits: HealthLimits, now_ms: int) -> list[str]:
    last_ms = max(status.ended_ms or 0, status.looked_ms or 0) or status.started_ms
    if limits.silent_seconds_max is None or last_ms is None:
        return []
    silent_seconds = (now_ms - last_ms) / 1000
    if silent_seconds <= limits.silent_seconds_max:
        return []
    return [f"no run has ended for {silent_seconds:.0f} s, more than {limits.silent_seconds_max:g} s"]


def _distance(lag: FlowLag | None, limits: HealthLimits) -> list[str]:
    problems = []
    if lag is None:
        if limits.records_max is not None or limits.behind_seconds_max is not None:
            problems.append("how far it is behind is not known: no broker answers for its topics")
        return problems
    if limits.records_max is not None and lag.records > limits.records_max:
        problems.append(f"it is {lag.records:,} records behind, more than {limits.records_max:,}")
    if limits.behind_seconds_max is not None:
        if lag.seconds is None:
            problems.append("how long its oldest unread record has been waiting is not known")
        elif lag.seconds > limits.behind_seconds_max:
            problems.append(f"it is {lag.seconds:.0f} s behind, more than {limits.behind_seconds_max:g} s")
    return problems
