"""What a pipeline's sources have told consumer groups of how far they are; a reset forgets it.

Nobody reads those positions to go on from (the checkpoints alone count), but people look at them: left
behind, they would say that all is read of what the next run has yet to read.  Only the positions of the
flow's own topics are removed: others in the same group may be somebody else's.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.group_offsets import GroupOffsets
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.pipelines.status import FlowStatus, PipelineStatus

TIMEOUT_MS: Final = 5_000


def forget_offsets(status: PipelineStatus, warn: Callable[[str], None]) -> list[str]:
    """Returns what was removed, in words.  A cluster that does not answer is warned of, and left as it is."""
    removed = []
    for flow in status.flows.values():
        if flow.bootstrap is None or not flow.group or not flow.positions:
            continue
        topics = ", ".join(sorted(flow.positions))
        try:
            asyncio.run(_forget(flow, flow.bootstrap, flow.group))
        except DlogError as error:
            warn(f"the offsets of group {flow.group} in {topics} are left as they were: {error}")
        else:
            removed.append(f"offsets of group {flow.group} in {topics}")
    return removed


async def _forget(flow: FlowStatus, bootstrap: str, group: str) -> None:
    options = ClientOptions(
        connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS, call_timeout_ms=TIMEOUT_MS
    )
    async with Cluster(parse_bootstrap(bootstrap), options) as cluster:
        offsets = GroupOffsets(cluster, group)
        stored = await offsets.fetch()
        await offsets.delete([each for each in stored if _is_of(flow, each)])


def _is_of(flow: FlowStatus, partition: TopicPartition) -> bool:
    return partition.topic in flow.positions
