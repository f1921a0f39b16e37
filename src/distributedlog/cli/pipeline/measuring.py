"""How far a pipeline is behind now, asked of its cluster; the rest is shown also if nobody answers."""

from typing import TYPE_CHECKING

from distributedlog.cli.output import warn

if TYPE_CHECKING:
    from distributedlog.pipelines.status import FlowLag, PipelineStatus


def measured(found: "PipelineStatus", bootstrap: str | None) -> "dict[str | None, FlowLag]":
    """Measures the lag of each flow that reads topics, and under None of the whole pipeline.  Empty if no
    broker answers."""
    whole = found.positions()
    if not whole or bootstrap is None:
        return {}
    from distributedlog.model.errors import DlogError
    from distributedlog.pipelines.lag import measure

    asked = {flow.name: flow.positions for flow in found.flows.values() if flow.positions}
    try:
        lags = measure(bootstrap, {**asked, "": whole})
    except DlogError as error:
        warn(f"the lag is not known: {error}")
        return {}
    return {name or None: lag for name, lag in lags.items()}
