"""The lag of groups as numbers for Prometheus, asked of the cluster round by round (docs/decisions/0012).

| family                              | labels                  | says                                       |
|-------------------------------------|-------------------------|--------------------------------------------|
| dlog_group_lag                      | group, topic, partition | records that are left to read              |
| dlog_group_lag_seconds              | group, topic, partition | how long the first of them has been waiting|
| dlog_group_offset                   | group, topic, partition | where the group stands                     |
| dlog_group_end_offset               | group, topic, partition | where the partition ends                   |
| dlog_group_lag_exact                | group                   | 1: counted; 0: an upper bound, by offsets  |
| dlog_group_exporter_up              |                         | 1 if the last round succeeded              |
| dlog_group_exporter_round_seconds   |                         | how long it took                           |
| dlog_group_exporter_success_seconds |                         | when one last succeeded                    |
| dlog_group_exporter_left_out        | what                    | groups and partitions beyond the bounds    |

**Bounds.**  At most `GROUPS_MAX` groups and `PARTITIONS_MAX` of their partitions are looked at in a round,
the first by name.  Counting may read `counted_bytes_max` in a round, shared among the partitions in equal
parts; where that does not reach the end, the rest is counted by offsets.

A round that fails leaves no numbers of an earlier one behind: what is old looks like what is well.
"""

import time
from collections.abc import Collection
from typing import Final

from distributedlog.broker.observability.metrics import Family, FamilyKind, Sample, one
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.group_lag import Lag, measure_lag
from distributedlog.client.admin.groups import GroupAdmin
from distributedlog.client.options import MIB
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

GROUPS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 20_000
COUNTED_BYTES_MAX: Final = 64 * MIB

DOCUMENTATION: Final = {
    "dlog_group_lag": "Records that a group has still to read.",
    "dlog_group_lag_seconds": "How long the first record that is left has been waiting, by its timestamp.",
    "dlog_group_offset": "The offset of the next record that a group reads.",
    "dlog_group_end_offset": "The end of the partition: its last stable offset.",
    "dlog_group_lag_exact": "1 if the lag was counted; 0 if some of it is an upper bound, by offsets.",
}

GroupPositions = dict[str, dict[TopicPartition, int]]


class LagExport:
    """What the last round found; `families` is what the operations listener asks for."""

    def __init__(
        self,
        admin: Admin,
        group_ids: Collection[str] = (),
        *,
        counted_bytes_max: int = COUNTED_BYTES_MAX,
        groups_max: int = GROUPS_MAX,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        """`group_ids` are the groups that are exported; without them all there are."""
        self._admin = admin
        self._groups = GroupAdmin(admin.cluster)
        self._group_ids = tuple(group_ids)
        self._counted_bytes_max = counted_bytes_max
        self._groups_max = groups_max
        self._partitions_max = partitions_max
        self._found: dict[str, dict[TopicPartition, Lag]] = {}
        self._now_ms = 0
        self._left_out = {"groups": 0, "partitions": 0}
        self._round_seconds = 0.0
        self._success_seconds = 0.0
        self.failure: str | None = "no round has ended yet"
        """Why the last round failed; None if it did not."""

    async def refresh(self) -> None:
        """One round.  What goes wrong is in `failure`."""
        begun = time.monotonic()
        try:
            positions = await self._positions()
            self._found = await self._lags(positions)
            self._now_ms = int(time.time() * 1000)
            self._success_seconds = time.time()
            self.failure = None
        except DlogError as error:
            self._found = {}
            self.failure = str(error)
        self._round_seconds = time.monotonic() - begun

    async def _positions(self) -> GroupPositions:
        """Returns where each group stands in the partitions that there are."""
        wanted = self._group_ids or tuple(each.group_id for each in await self._groups.list_groups())
        self._left_out = {"groups": max(0, len(wanted) - self._groups_max), "partitions": 0}
        there = {
            TopicPartition(topic.name, each.index)
            for topic in await self._admin.list_topics(with_internal=True)
            for each in topic.partitions
        }
        found: GroupPositions = {}
        room = self._partitions_max
        for group_id in sorted(wanted)[: self._groups_max]:
            stored = await self._groups.offsets(group_id).fetch()
            known = {each: stored[each].offset for each in sorted(stored) if each in there}
            found[group_id] = dict(list(known.items())[:room])
            self._left_out["partitions"] += len(known) - len(found[group_id])
            room -= len(found[group_id])
        return found

    async def _lags(self, positions: GroupPositions) -> dict[str, dict[TopicPartition, Lag]]:
        partitions = sum(map(len, positions.values()))
        share = self._counted_bytes_max // max(1, partitions)
        return {
            group_id: await measure_lag(self._admin.cluster, dict(stands), counted_bytes_max=share)
            for group_id, stands in positions.items()
        }

    # --- for the operations listener -----------------------------------------------------------

    def families(self) -> list[Family]:
        is_up = self.failure is None
        up = one(FamilyKind.GAUGE, "dlog_group_exporter_up", "1 if the last round succeeded.", is_up)
        took = one(
            FamilyKind.GAUGE, "dlog_group_exporter_round_seconds", "How long it took.", self._round_seconds
        )
        when = one(
            FamilyKind.GAUGE,
            "dlog_group_exporter_success_seconds",
            "When a round last succeeded, in seconds since 1970.",
            self._success_seconds,
        )
        left_out = Family(
            FamilyKind.GAUGE,
            "dlog_group_exporter_left_out",
            "Groups and partitions beyond the bounds.",
            [Sample({"what": what}, count) for what, count in self._left_out.items()],
        )
        return [up, took, when, left_out, *self._lag_families()]

    def _lag_families(self) -> list[Family]:
        samples: dict[str, list[Sample]] = {name: [] for name in DOCUMENTATION}
        for group_id, lags in self._found.items():
            exact = all(lag.is_exact for lag in lags.values())
            samples["dlog_group_lag_exact"].append(Sample({"group": group_id}, float(exact)))
            for partition, lag in lags.items():
                labels = {"group": group_id, "topic": partition.topic, "partition": str(partition.partition)}
                for name, value in (
                    ("dlog_group_lag", lag.records),
                    ("dlog_group_lag_seconds", lag.seconds_at(self._now_ms)),
                    ("dlog_group_offset", lag.committed_offset),
                    ("dlog_group_end_offset", lag.end),
                ):
                    if value is not None:
                        samples[name].append(Sample(labels, value))
        return [Family(FamilyKind.GAUGE, name, DOCUMENTATION[name], samples[name]) for name in samples]
