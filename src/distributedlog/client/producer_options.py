"""What a producer can be told, and which of it fits together.  Pure."""

from dataclasses import dataclass
from typing import Final

from distributedlog.client.options import MIB
from distributedlog.client.partitioner import ChoosePartition, PartitionerName, check_partitioner
from distributedlog.model.errors import ConfigError
from distributedlog.records.compression import Codec, check_level

ACKS_ALL: Final = -1
IN_FLIGHT_MAX: Final = 5
"""The batches of a producer that a broker remembers of a partition: older ones it could not know again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    acks: int = ACKS_ALL
    """-1: all in-sync replicas have it; 1: the leader has it; 0: it was sent."""
    codec: Codec = Codec.NONE
    idempotent: bool | None = None
    """None: if the acknowledgements and the broker allow it."""
    linger_ms: int = 5
    batch_bytes_max: int = 256 * 1024
    request_bytes_max: int = 16 * MIB
    buffer_bytes_max: int = 32 * MIB
    """The undelivered bytes from which on `send` waits."""
    delivery_timeout_ms: int = 120_000
    allow_creation: bool = True
    """Whether a topic may be created by sending to it, if the cluster does that."""
    codec_level: int | None = None
    """None: the codec's own."""
    partitioner: PartitionerName | ChoosePartition = "murmur2"
    in_flight_max: int = IN_FLIGHT_MAX
    """How many batches of a partition may be under way at once, if the producer is idempotent; else one."""
    transactional_id: str | None = None
    """The name under which it has transactions; at most one producer has it at a time."""
    transaction_timeout_ms: int = 60_000
    """The time after which the coordinator aborts a transaction by itself."""

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ConfigError(f"acks is {self.acks}; it must be -1 (all), 0 or 1")
        if self.idempotent and self.acks != ACKS_ALL:
            raise ConfigError("an idempotent producer needs acks=all")
        if self.transactional_id is not None:
            if not self.transactional_id or self.transaction_timeout_ms <= 0:
                raise ConfigError("transactional_id is empty, or transaction_timeout_ms is not positive")
            if self.acks != ACKS_ALL or self.idempotent is False:
                raise ConfigError("a producer with a transactional_id needs acks=all and idempotence")
        if self.linger_ms < 0 or self.delivery_timeout_ms <= 0:
            raise ConfigError("linger_ms must not be negative, delivery_timeout_ms must be positive")
        if not 0 < self.in_flight_max <= IN_FLIGHT_MAX:
            raise ConfigError(f"in_flight_max is {self.in_flight_max}; it must be from 1 to {IN_FLIGHT_MAX}")
        if not 0 < self.batch_bytes_max <= self.request_bytes_max <= self.buffer_bytes_max:
            raise ConfigError("batch_bytes_max, request_bytes_max and buffer_bytes_max must rise")
        check_level(self.codec, self.codec_level)
        check_partitioner(self.partitioner)
