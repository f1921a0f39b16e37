"""Builders that the tests of partitions share: one partition on a simulated disk, steps by hand."""

from dataclasses import dataclass, field

from distributedlog.model.config import LogConfig
from distributedlog.model.ids import Uuid
from distributedlog.ports.round_executor import SingleRounds
from distributedlog.records.batch import read_header
from distributedlog.records.record import decode_batch
from distributedlog.replication.contract import ACKS_ALL, PartitionRead, PartitionSignals
from distributedlog.replication.partition import Partition
from distributedlog.replication.verifications import Verification
from distributedlog.storage.append import AppendResult, Origin
from distributedlog.storage.files import Files
from distributedlog.storage.syncs.rounds import SyncRounds
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor
from tests.unit.storage.support import NOW_MS, SMALL, batch_of, batches_in, open_on, value_of

TOPIC_ID = Uuid(b"topic-id-of-test")
ME, OTHER, THIRD = 1, 2, 3


@dataclass
class Stage:
    """A partition, the disk below it, and what it said."""

    config: LogConfig = SMALL
    min_insync_replicas: int = 1
    disk: SimDisk = field(default_factory=SimDisk)
    executor: StepExecutor = field(default_factory=StepExecutor)
    high_watermark: int | None = 0

    def __post_init__(self) -> None:
        self.signals = PartitionSignals()
        self.told: list[str] = []
        self.files = Files(self.disk)
        log, _ = open_on(self.disk, self.config, files=self.files, high_watermark=self.high_watermark)
        self.partition = Partition(
            "t",
            TOPIC_ID,
            0,
            log,
            broker_id=ME,
            rounds=SyncRounds(SingleRounds(self.executor)),
            signals=self.signals,
            min_insync_replicas=self.min_insync_replicas,
        )
        self.signals.end_advanced.append(lambda partition: self.told.append("end"))
        self.signals.commit_advanced.append(lambda partition: self.told.append("commit"))
        self.signals.state_changed.append(lambda partition: self.told.append("state"))

    def lead(
        self,
        epoch: int = 0,
        *,
        replicas: tuple[int, ...] = (ME,),
        isr: tuple[int, ...] | None = None,
        elr: tuple[int, ...] = (),
    ) -> Partition:
        self.partition.become_leader(
            epoch, partition_epoch=epoch, replicas=replicas, isr=isr or replicas, now_ms=0, elr=elr
        )
        return self.partition

    def follow(self, epoch: int = 0, leader: int = OTHER) -> Partition:
        self.partition.become_follower(
            epoch, partition_epoch=epoch, leader_id=leader, replicas=(ME, OTHER), isr=(ME, OTHER)
        )
        return self.partition


def produce(partition: Partition, *numbers: int, acks: int = ACKS_ALL) -> AppendResult:
    return partition.append(batch_of([value_of(number) for number in numbers]), acks, NOW_MS)


def confirm(partition: Partition, producer_id: int, producer_epoch: int = 0) -> Verification:
    """Confirms a transaction as its coordinator would: its producer may append from now on."""
    verification = partition.verifications.begin(producer_id, producer_epoch)
    verification.is_confirmed = True
    return verification


def produce_data(partition: Partition, data: bytearray, origin: Origin = Origin.CLIENT) -> AppendResult:
    """Appends a batch; one of a transaction is confirmed."""
    header = read_header(data)
    if header.is_transactional and not header.is_control:
        confirm(partition, header.producer_id, header.producer_epoch)
    return partition.append(data, ACKS_ALL, NOW_MS, origin)


def values_of(read: PartitionRead) -> list[bytes | None]:
    """The values of the data records that were read; the region is given back."""
    if read.region is None:
        return []
    with read.region as region:
        return [
            record.value
            for header, data in batches_in(region.read())
            if not header.is_control
            for record in decode_batch(data)
        ]


def follower_batch(base_offset: int, *numbers: int, leader_epoch: int = 0) -> bytearray:
    return batch_of([value_of(each) for each in numbers], base_offset=base_offset, leader_epoch=leader_epoch)
