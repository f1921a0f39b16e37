"""Reading the partitions of one fetch, in order, within its limits.

    bytes        of the whole response and of each partition, as the request and the broker allow.  The first
                 batch of the first partition that has one is returned whole whatever its size: else a reader
                 would never get past it
    regions      REGIONS_MAX of a response stay in their files until they are sent.  Beyond that small ones
                 are read at once and large ones left for the next fetch: each region keeps a file open

    who reads                     how far                                  from whom
    a consumer                    high watermark, or last stable offset    the leader; from version 11 on
                                                                           any replica, and the leader
                                                                           names the nearest one
    a follower (replica id >= 0)  the log's end; it has all before         the leader

A partition that cannot be read has an error and nothing else; the others are read all the same.

A follower that catches up may be throttled (`replication_quotas`): what it is sent of such partitions is no
more than the leader's throttle allows, and one of which nothing may be sent is left out of the response.  Its
fetch is noted all the same.

Every region belongs to a `Reading` until it goes into a response.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._nearest_replica import find_nearest_replica
from distributedlog.broker.net.outgoing import SENDFILE_MIN
from distributedlog.broker.replicas.delayed import AwaitedData, count_seen
from distributedlog.broker.replicas.fetch_sessions import FetchSpec, PartitionSummary
from distributedlog.broker.replicas.idle_partitions import IdlePartition, PartitionKey
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import CorruptLogError, DlogError, UnsupportedCompressionError
from distributedlog.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from distributedlog.replication.contract import NO_REPLICA, PartitionRead
from distributedlog.replication.partition import Partition
from distributedlog.storage.files import FileRegion

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

REGIONS_MAX: Final = 64
UNKNOWN_OFFSET: Final = -1
NO_EPOCH: Final = -1
"""Every negative epoch says as much."""
_NOT_LOOKED_FOR: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Where there is no log, Kafka names no aborted transactions; where one cannot be read, it knows of none."""
ANY_REPLICA_SINCE: Final = 11
ZSTD_SINCE: Final = 10
STORAGE_ERROR_SINCE: Final = 6


class Reader:
    """Who reads, and as what."""

    __slots__ = ("broker_epoch", "broker_id", "isolation", "listener", "rack", "version")

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        isolation: int,
        version: int,
        *,
        rack: str = "",
        listener: str = "",
    ) -> None:
        self.rack = rack
        """Where a consumer says that it stands; empty if it does not."""
        self.listener = listener
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.isolation = isolation
        self.version = version

    @property
    def is_follower(self) -> bool:
        return self.broker_id >= 0

    def read(
        self,
        partition: Partition,
        wanted: FetchSpec,
        max_bytes: int,
        at_least_one: bool,
        services: "Services",
    ) -> PartitionRead:
        offset, _, current_leader_epoch, last_fetched_epoch, log_start_offset = wanted
        if self.broker_id >= 0:
            return partition.read_for_replica(
                self.broker_id,
                offset,
                max_bytes,
                services.clock.monotonic_ms(),
                follower_epoch=self.broker_epoch,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
                follower_log_start=log_start_offset,
                at_least_one=at_least_one,
            )
        if self.version < ZSTD_SINCE and partition.log.config.compression_type == "zstd":
            raise UnsupportedCompressionError(f"zstd needs Fetch version {ZSTD_SINCE}")
        if self.rack:
            nearest = find_nearest_replica(services, partition, offset, self.rack, self.listener)
            if nearest is not None:
                return partition.read_elsewhere(nearest, current_leader_epoch)
        return partition.read(
            offset,
            max_bytes,
            isolation=self.isolation,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
            at_least_one=at_least_one,
            any_replica=self.version >= ANY_REPLICA_SINCE,
        )

    def awaits(self, partition: Partition) -> AwaitedData:
        return AwaitedData(partition, self.isolation, self.broker_id >= 0)


class Reading:
    """What was read.  `take` what goes into the response, then `close`."""

    __slots__ = (
        "_data",
        "_idle",
        "_regions",
        "is_held_back",
        "is_pressing",
        "partitions",
        "read_bytes",
        "throttled_bytes",
    )

    def __init__(self) -> None:
        self._data: dict[PartitionKey, PartitionData] = {}
        self._idle: dict[PartitionKey, IdlePartition] = {}
        self._regions = 0
        self.partitions: dict[PartitionKey, Partition] = {}
        """Those that could be read."""
        self.read_bytes = 0
        self.is_pressing = False
        """Some partition has something to say that does not wait for more bytes: an error, a divergence."""
        self.throttled_bytes = 0
        """The bytes, of all that was read, that count for the leader's throttle."""
        self.is_held_back = False
        """Some partition was left out: its follower is throttled."""

    def add(self, key: PartitionKey, partition: Partition, read: PartitionRead) -> None:
        """Takes the region over."""
        region, high_watermark, last_stable_offset, log_start_offset, aborted, diverging, elsewhere = read
        data = self._data[key] = PartitionData(
            partition_index=key[1],
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        self.partitions[key] = partition
        if region is not None:
            self._hold(data, region)
        if aborted is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in aborted
            ]
        if elsewhere != NO_REPLICA:
            self.is_pressing = True
            data.preferred_read_replica = elsewhere
        if diverging is not None:
            self.is_pressing = True
            data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)

    def _hold(self, data: PartitionData, region: FileRegion) -> None:
        if self._regions < REGIONS_MAX:
            self._regions += 1
            data.records = region
            self.read_bytes += region.length
            return
        try:
            if region.length < SENDFILE_MIN:
                data.records = region.read()
                self.read_bytes += region.length
        finally:
            region.close()

    def add_error(self, key: PartitionKey, code: ErrorCode) -> None:
        self.is_pressing = True
        self._data[key] = PartitionData(
            partition_index=key[1],
            error_code=code,
            high_watermark=UNKNOWN_OFFSET,
            aborted_transactions=[] if code in _NOT_LOOKED_FOR else None,
            records=b"",
        )

    def note_idle(self, key: PartitionKey, awaited: AwaitedData) -> None:
        """The partition was read to its end."""
        self._idle[key] = IdlePartition(awaited.partition, *count_seen(awaited))

    def list_awaited(self, reader: Reader, keys: Iterable[PartitionKey]) -> list[AwaitedData]:
        partitions = self.partitions
        return [reader.awaits(partitions[key]) for key in keys if key in partitions]

    def summarize(self) -> list[tuple[PartitionKey, PartitionSummary]]:
        """Summarizes each partition for the session, in the order of reading."""
        idle = self._idle
        partitions = self.partitions
        return [
            (key, _summarize(data, idle.get(key), partitions.get(key))) for key, data in self._data.items()
        ]

    def get(self, key: PartitionKey) -> PartitionData:
        return self._data[key]

    def take(self, key: PartitionKey) -> PartitionData:
        """Its region is the taker's to close."""
        return self._data.pop(key)

    def close(self) -> None:
        """Gives back the regions of all that was not taken."""
        for data in self._data.values():
            if isinstance(data.records, FileRegion):
                data.records.close()
        self._data.clear()


def _summarize(
    data: PartitionData, idle: IdlePartition | None, partition: Partition | None
) -> PartitionSummary:
    return PartitionSummary(
        len(data.records) if data.records is not None else 0,
        data.high_watermark,
        data.log_start_offset,
        ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE,
        data.diverging_epoch is not None or data.preferred_read_replica != NO_REPLICA,
        idle,
        partition is not None and partition.is_commit_awaited,
    )


def read_partitions(
    services: "Services", reader: Reader, wanted: Mapping[PartitionKey, FetchSpec], max_bytes: int
) -> Reading:
    reading = Reading()
    try:
        for key, each in wanted.items():
            left_bytes = max(0, max_bytes - reading.read_bytes)
            limit_bytes = min(max(0, each.max_bytes), left_bytes)
            try:
                partition = _find(services, key)
                if reader.is_follower and _is_throttled(services, reader, partition, each):
                    _read_throttled(services, reader, reading, key, each, limit_bytes)
                    continue
                read = reader.read(partition, each, limit_bytes, not reading.read_bytes, services)
                reading.add(key, partition, read)
                is_elsewhere = read.diverging is not None or read.preferred_read_replica != NO_REPLICA
                is_at_end = read.region is None and not is_elsewhere
                if is_at_end and partition.is_idle_at(each.offset, reader.broker_id):
                    reading.note_idle(key, reader.awaits(partition))
            except DlogError as error:
                if isinstance(error, CorruptLogError):
                    services.partitions.suspect(_find(services, key), each.offset)
                reading.add_error(key, _translate_code(error.code, reader.version))
    except BaseException:
        reading.close()
        raise
    return reading


def _is_throttled(services: "Services", reader: Reader, partition: Partition, wanted: FetchSpec) -> bool:
    view, quota = partition.view, services.replication_quotas.leader
    return (
        view is not None
        and quota.is_throttled(partition.topic, partition.partition_id)
        and view.is_catching_up(reader.broker_id, wanted.offset)
    )


def _read_throttled(
    services: "Services",
    reader: Reader,
    reading: Reading,
    key: PartitionKey,
    wanted: FetchSpec,
    limit_bytes: int,
) -> None:
    """Reads within the leader's throttle; a partition that it leaves nothing for is not added."""
    partition = _find(services, key)
    allowance = services.replication_quotas.leader.find_allowance(services.clock.monotonic_ms())
    allowance = max(0, allowance - reading.throttled_bytes)
    at_least_one = allowance > 0 and not reading.read_bytes
    read = reader.read(partition, wanted, min(limit_bytes, allowance), at_least_one, services)
    if read.region is None and read.diverging is None and wanted.offset < partition.log_end_offset:
        reading.is_held_back = True
        return
    before_bytes = reading.read_bytes
    reading.add(key, partition, read)
    reading.throttled_bytes += reading.read_bytes - before_bytes


def _find(services: "Services", key: PartitionKey) -> Partition:
    topic, index = key
    partitions = services.partitions
    if isinstance(topic, str):
        return partitions.get(topic, index) or partitions.require(topic, index)
    return partitions.get_by_id(topic, index) or partitions.require_by_id(topic, index)


def _translate_code(code: ErrorCode, version: int) -> ErrorCode:
    """Clients before version 6 do not know KAFKA_STORAGE_ERROR and would give up; so they look elsewhere."""
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code
