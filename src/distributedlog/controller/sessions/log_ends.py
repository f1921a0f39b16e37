"""Where the logs of partitions end that nobody leads: what brokers tell the controller (`unclean`)."""

from typing import Final, NamedTuple

from distributedlog.model.ids import Uuid

LOG_ENDS_PER_HEARTBEAT_MAX: Final = 1_000


class ReplicaLogEnd(NamedTuple):
    topic_id: Uuid
    partition_id: int
    leader_epoch: int
    """The leader epoch of the partition, in which it has no leader."""
    last_epoch: int
    """The epoch of the log's last batch; -1 if it has none."""
    end_offset: int
