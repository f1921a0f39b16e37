"""Without a cluster; with one: tests/spark/test_pipelines.py."""

from distributedlog.pipelines.groups import forget_offsets
from distributedlog.pipelines.status import FlowStatus, PipelineStatus
from tests.ports import free_port


def told(**flow: object) -> tuple[list[str], list[str]]:
    """(removed, warnings)."""
    warnings: list[str] = []
    status = PipelineStatus(flows={"raw": FlowStatus("raw", **flow)})  # type: ignore[arg-type]
    return forget_offsets(status, warnings.append), warnings


def test_a_cluster_that_is_gone_is_warned_of() -> None:
    removed, warnings = told(bootstrap=f"127.0.0.1:{free_port()}", group="shop", positions={"orders": {0: 5}})
    assert removed == []
    assert len(warnings) == 1
    assert "offsets of group shop in orders are left as they were" in warnings[0]


def test_who_told_nobody_or_read_nothing_has_nothing_to_forget() -> None:
    assert told() == ([], [])
    assert told(bootstrap="127.0.0.1:1", group="", positions={"orders": {0: 5}}) == ([], [])
    assert told(bootstrap="127.0.0.1:1", group="shop") == ([], [])
