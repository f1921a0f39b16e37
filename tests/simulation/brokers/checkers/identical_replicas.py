"""Below their high watermarks all replicas of a partition have the same bytes, and they never change.

The truth is what the first leader committed.  Whoever commits the same offsets again, follows, or has
restarted, has the same batches there; a follower's high watermark is never above what a leader committed.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from distributedlog.records.batch import HEADER_BYTES, read_header
from distributedlog.replication.partition import Partition
from tests.reliability.history import Place
from tests.simulation.brokers.checkers import BrokersChecker, PartitionKey, key_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster
    from tests.simulation.brokers.host import BrokerHost

READ_BYTES = 64 * 1024


class _Truth:
    """What is committed of one partition."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.batches: list[bytes] = []
        self.epochs: list[int] = []
        """The epochs in which they were committed; they may have been appended in earlier ones."""
        self.end = 0

    def at(self, offset: int) -> bytes:
        return self.batches[bisect_right(self.bases, offset) - 1]


class IdenticalReplicas(BrokersChecker):
    name = "identical replicas"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._truths: dict[PartitionKey, _Truth] = {}
        self._checked: dict[tuple[int, int, PartitionKey], None] = {}
        self.batches = 0

    def committed_end(self, place: Place) -> int:
        """Returns up to where the leaders have committed a partition."""
        topic = self.cluster.steps[-1].after.topic_named(place.topic)
        return 0 if topic is None else self.committed_end_of(PartitionKey(topic.topic_id, place.partition))

    def committed_end_of(self, key: PartitionKey) -> int:
        truth = self._truths.get(key)
        return 0 if truth is None else truth.end

    def committed_before(self, place: Place, epoch: int) -> int:
        """Returns up to where leaders of epochs before this one have committed a partition."""
        topic = self.cluster.steps[-1].after.topic_named(place.topic)
        truth = None if topic is None else self._truths.get(PartitionKey(topic.topic_id, place.partition))
        if truth is None:
            return 0
        end = truth.end
        for base, committed_in in zip(reversed(truth.bases), reversed(truth.epochs), strict=True):
            if committed_in < epoch:
                break
            end = base
        return end

    def on_commit(self, host: "BrokerHost", partition: Partition, before: int, after: int) -> None:
        self._check(host, partition, before, after)

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        """Looks once at all that a process has found on its disk."""
        place = (host.node_id, host.life, key_of(partition))
        if place not in self._checked:
            self._checked[place] = None
            self._check(host, partition, partition.log_start_offset, partition.high_watermark)

    def finish(self) -> None:
        for host in self.cluster.hosts.values():
            for partition in host.partitions():
                self._check(host, partition, partition.log_start_offset, partition.high_watermark)

    def _check(self, host: "BrokerHost", partition: Partition, start: int, end: int) -> None:
        truth = self._truths.setdefault(key_of(partition), _Truth())
        for base, batch in batches_between(partition, max(start, partition.log_start_offset), end):
            if base >= truth.end:
                if not partition.is_leader:
                    self.fail(
                        f"{partition.key} on node {host.node_id} takes offset {base} for committed; the "
                        f"leaders have committed {truth.end}"
                    )
                truth.bases.append(base)
                truth.batches.append(batch)
                truth.epochs.append(partition.leader_epoch)
                truth.end = base + read_header(batch).last_offset_delta + 1
                self.batches += 1
            elif truth.at(base) != batch:
                self.fail(
                    f"{partition.key} on node {host.node_id} has at offset {base} another batch than was "
                    f"committed: {_describe(batch)} instead of {_describe(truth.at(base))}"
                )


def batches_between(partition: Partition, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Reads batches from a replica, from the one that holds `start`.

    What is read at once may end inside a batch: that one is read again, whole, with what comes next.
    """
    offset = start
    while offset < end:
        region, _ = partition.log.read(offset, READ_BYTES, up_to=end)
        if region is None:
            return
        data = region.read()
        region.close()
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = read_header(data, position)
            if position and position + header.size > len(data):
                break
            yield header.base_offset, bytes(data[position : position + header.size])
            position += header.size
            offset = header.base_offset + header.last_offset_delta + 1


def _describe(batch: bytes) -> str:
    header = read_header(batch)
    return (
        f"{header.record_count} records from {header.base_offset}, epoch {header.leader_epoch}, "
        f"producer {header.producer_id} sequence {header.base_sequence}, CRC {header.crc:x}"
    )
