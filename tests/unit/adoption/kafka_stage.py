"""Directories of Kafka's to adopt, on the simulated disk: one that Kafka wrote, and some made up record by
record for what no single broker leaves."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from distributedlog.adoption.kafka_records import KAFKA_RECORDS
from distributedlog.controller.records import PartitionCreated, TopicCreated
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.clock import SystemClock
from distributedlog.protocol.codec import encode_bytes
from distributedlog.protocol.primitives import uvarint
from distributedlog.protocol.schema import Message
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
)
from distributedlog.storage.files import Files
from tests.simulation.clock import SeededRandomness
from tests.simulation.disk import SimDisk

GOLDEN = Path(__file__).parents[1] / "storage" / "golden"
CLEAN = GOLDEN / "clean" / "data"
METADATA = "__cluster_metadata-0"
CLUSTER = "a-cluster"
NUMBERS = {schema: number for number, schema in KAFKA_RECORDS.items()}
FIRST_LOG = f"{0:020d}.log"


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def copy_in(disk: SimDisk, source: Path, target: str) -> None:
    """A directory of the real disk, durable on the simulated one."""
    files = Files(disk)
    files.make_directory(target)
    for path in sorted(source.rglob("*")):
        inside = f"{target}/{path.relative_to(source)}"
        if path.is_dir():
            files.make_directory(inside)
        else:
            put(disk, inside, path.read_bytes())


def put(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.sync()
    file.close()
    disk.sync_directory(path.rpartition("/")[0])


def framed(message: Message, version: int | None = None) -> bytes:
    """Returns it as Kafka keeps it, in the newest version unless said otherwise."""
    chosen = type(message).versions[1] if version is None else version
    head = uvarint(1) + uvarint(NUMBERS[type(message)]) + uvarint(chosen)
    return head + encode_bytes(message, chosen)


def batches(messages: Iterable[Message], base_offset: int = 0) -> bytes:
    """One batch for each record."""
    return b"".join(
        bytes(encode_batch([Record(framed(message))], base_offset=base_offset + at, leader_epoch=1))
        for at, message in enumerate(messages)
    )


def topic_records(
    name: str,
    topic_id: Uuid,
    replicas: Sequence[Sequence[int]],
    *,
    isr: Sequence[int] | None = None,
    directories: Sequence[Uuid] = (),
) -> list[Message]:
    records: list[Message] = [TopicCreated(name=name, topic_id=topic_id)]
    for number, on in enumerate(replicas):
        in_sync = list(on) if isr is None else list(isr)
        records.append(
            PartitionCreated(
                partition_id=number,
                topic_id=topic_id,
                replicas=list(on),
                isr=in_sync,
                leader=in_sync[0] if in_sync else -1,
                leader_epoch=3,
                partition_epoch=4,
                directories=list(directories),
            )
        )
    return records


class KafkaDirectory:
    """One log directory of a broker, made up."""

    def __init__(
        self, disk: SimDisk, path: str, *, broker_id: int = 1, directory_id: Uuid | None = None
    ) -> None:
        self.disk, self.path = disk, path
        Files(disk).make_directory(path)
        meta = MetaProperties(CLUSTER, broker_id, directory_id or uuid(1000 + broker_id))
        put(disk, f"{path}/{META_PROPERTIES_FILE}", encode_meta_properties(meta))
        put(disk, f"{path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(7))

    def metadata(self, messages: Iterable[Message]) -> "KafkaDirectory":
        Files(self.disk).make_directory(f"{self.path}/{METADATA}")
        put(self.disk, f"{self.path}/{METADATA}/{FIRST_LOG}", batches(messages))
        return self

    def partition(self, topic: str, number: int, topic_id: Uuid, records: int = 3) -> "KafkaDirectory":
        directory = f"{self.path}/{TopicPartition(topic, number).directory_name}"
        Files(self.disk).make_directory(directory)
        put(self.disk, f"{directory}/partition.metadata", encode_partition_metadata(topic_id))
        values = [Record(b"%d" % each, timestamp_ms=1_700_000_000_000) for each in range(records)]
        log = bytes(encode_batch(values, leader_epoch=2)) if records else b""
        put(self.disk, f"{directory}/{FIRST_LOG}", log)
        return self

    def unclean(self) -> "KafkaDirectory":
        self.disk.remove(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        return self


def clock_and_chance() -> tuple[SystemClock, SeededRandomness]:
    return SystemClock(), SeededRandomness(5)
