"""A pipeline's history, folded into what people ask: rows, lag, batch time, last error.  Nothing here has
effects.

| question               | answer                                                                         |
|------------------------|--------------------------------------------------------------------------------|
| is it well             | `state` of the last run: completed, failed, running; stopped if it died        |
| is there nothing to do | `is_idle`: nothing was new when it was last looked, after the last run         |
| what did each flow do? | rows read and written in all and in the last batch, batches, time, last error  |
| and in the last run?   | its `state`: waiting, running, completed, failed, skipped; "not run" if the    |
|                        | run ended without it, "stopped" if that ended in the middle of it              |
| how far has it come?   | `positions` of each flow that reads topics                                     |
| how far is it behind?  | the topics' ends less the positions, of its flows the furthest behind          |
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from distributedlog.pipelines.progress import Positions, parse_positions

LAG_SAMPLES_MAX: Final = 10_000
"""What a process that runs for months remembers of them."""
WAITING: Final = "waiting"
RUNNING: Final = "running"
UNFINISHED: Final = {WAITING: "not run", RUNNING: "stopped"}
"""What a flow that did not say how it ended has been, once its run is over."""


@dataclass(slots=True)
class FlowStatus:
    name: str
    state: str = WAITING
    """The state in the last run."""
    rows: int = 0
    """Read, in all."""
    rows_last: int = 0
    rows_out: int = 0
    """Written, in all."""
    rows_out_last: int = 0
    rows_too_late: int = 0
    batches: int = 0
    milliseconds_last: int | None = None
    time_ms: int | None = None
    positions: Positions = field(default_factory=dict)
    error: str | None = None
    """The error of the last failure, until the flow has completed again."""
    bootstrap: str | None = None
    group: str | None = None
    """The group that it tells how far it is in its topics."""


@dataclass(slots=True)
class PipelineStatus:
    runs: int = 0
    state: str = "never ran"
    started_ms: int | None = None
    ended_ms: int | None = None
    looked_ms: int | None = None
    """When nothing was found that a run would have been made for, the last time."""
    milliseconds_last: int | None = None
    rows_last: int = 0
    failures_in_a_row: int = 0
    error: str | None = None
    flows: dict[str, FlowStatus] = field(default_factory=dict)
    lag_samples: list[tuple[int, int | None]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        return self.state == "completed" and (self.looked_ms or 0) > (self.ended_ms or 0)

    @property
    def rows(self) -> int:
        """Rows that came in from topics; what flows hand to each other is not counted twice."""
        return sum(flow.rows for flow in self.flows.values() if flow.positions)

    def positions(self) -> dict[str, dict[int, int]]:
        """Returns for each partition the position of the flow that is furthest behind."""
        behind: dict[str, dict[int, int]] = {}
        for flow in self.flows.values():
            for topic, partitions in flow.positions.items():
                known = behind.setdefault(topic, {})
                for partition, position in partitions.items():
                    known[partition] = min(position, known.get(partition, position))
        return behind


@dataclass(frozen=True, slots=True)
class FlowLag:
    """How far a flow is behind its topics."""

    records: int
    """The records between what was read and the topics' ends, by offsets; a partition nobody has read counts
    whole."""
    seconds: float | None
    """How long the first record that was not read has been waiting; None if that is not known."""


def lag_of(positions: Positions, ends: Mapping[str, Mapping[int, int]]) -> int:
    """Records between what was read and the topics' ends.  A partition nobody has read yet counts whole."""
    behind = 0
    for topic, partitions in positions.items():
        for partition, end in ends.get(topic, {}).items():
            behind += max(0, end - partitions.get(partition, 0))
    return behind


def fold(
    events: Iterable[Mapping[str, Any]], *, onto: PipelineStatus | None = None, is_running: bool = False
) -> PipelineStatus:
    """Events onto what is known, which is changed; `is_running` says whether the process that runs it is
    alive.
    """
    status = PipelineStatus() if onto is None else onto
    for event in events:
        kind = event["type"]
        if kind == "run":
            _fold_run(status, event)
        elif kind == "batch":
            _fold_batch(status, event)
        elif kind == "flow":
            _fold_flow(status, event)
        elif kind == "source":
            _fold_source(status, event)
        elif kind == "idle":
            status.looked_ms = event["time_ms"]
        elif kind == "lag":
            status.lag_samples.append((event["time_ms"], event.get("records")))
            del status.lag_samples[:-LAG_SAMPLES_MAX]
    if status.state == "running" and not is_running:
        status.state = "stopped"  # its process died in the middle; the next run goes on from the checkpoints
        _end_flows(status)
    return status


def _fold_run(status: PipelineStatus, event: Mapping[str, Any]) -> None:
    state = event.get("state")
    if state == "started":
        status.runs = int(event.get("run") or 0)
        status.state, status.started_ms = "running", event["time_ms"]
        for flow in status.flows.values():
            flow.state = WAITING
        return
    _end_flows(status)
    status.state, status.ended_ms = str(state), event["time_ms"]
    status.milliseconds_last = event.get("milliseconds")
    status.rows_last = int(event.get("rows") or 0)
    if state == "failed":
        status.failures_in_a_row += 1
        status.error = event.get("error")
    else:
        status.failures_in_a_row = 0
        status.error = None


def _end_flows(status: PipelineStatus) -> None:
    for flow in status.flows.values():
        flow.state = UNFINISHED.get(flow.state, flow.state)


def _flow(status: PipelineStatus, event: Mapping[str, Any]) -> FlowStatus:
    name = str(event.get("flow"))
    return status.flows.setdefault(name, FlowStatus(name))


def _fold_batch(status: PipelineStatus, event: Mapping[str, Any]) -> None:
    flow = _flow(status, event)
    flow.batches += 1
    flow.rows_last = int(event.get("rows") or 0)
    flow.rows = int(event.get("rows_total") or flow.rows + flow.rows_last)
    flow.rows_out_last = int(event.get("rows_out") or 0)
    flow.rows_out = int(event.get("rows_out_total") or flow.rows_out + flow.rows_out_last)
    flow.rows_too_late += int(event.get("rows_too_late") or 0)
    flow.milliseconds_last = event.get("milliseconds")
    flow.time_ms = event["time_ms"]
    if flow.state == WAITING:
        flow.state = RUNNING
    flow.positions = parse_positions(event.get("positions")) or flow.positions


def _fold_flow(status: PipelineStatus, event: Mapping[str, Any]) -> None:
    flow = _flow(status, event)
    flow.state = str(event.get("state"))
    if event.get("error"):
        flow.error = str(event["error"])
    elif flow.state == "completed":
        flow.error = None


def _fold_source(status: PipelineStatus, event: Mapping[str, Any]) -> None:
    flow = _flow(status, event)
    flow.bootstrap, flow.group = event.get("bootstrap"), event.get("group")
