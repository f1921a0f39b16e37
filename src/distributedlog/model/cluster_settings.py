"""The settings that the whole cluster has in common: controllers and brokers both act on them.

If a leader and the controller believed different values of `min.insync.replicas`, the one would commit what
the other thinks cannot be committed; so there is one value, in the metadata log, for everybody: that of all
brokers (the broker resource without a name), written when the cluster is formatted.  What a topic itself says
comes before it, where topics have the setting.  A single broker has no value of its own for any of these.

The default of a setting is that of one broker, and of clusters that were formatted before it was there: it
is never changed, because brokers of two versions must mean the same by its absence.  What a new cluster is
formatted with may be another value (`find_new_cluster_defaults`): several brokers replicate, sessions are
shorter, and internal topics grow when brokers join.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from distributedlog.model.config import INT32_MAX, MIB, MINUTE_MS, SECOND_MS
from distributedlog.model.errors import ConfigError
from distributedlog.model.setting_text import read_boolean, read_whole_number

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
NUM_PARTITIONS: Final = "num.partitions"
DEFAULT_REPLICATION_FACTOR: Final = "default.replication.factor"
OFFSETS_TOPIC_PARTITIONS: Final = "offsets.topic.num.partitions"
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = "offsets.topic.replication.factor"
OFFSETS_TOPIC_SEGMENT_BYTES: Final = "offsets.topic.segment.bytes"
TRANSACTIONS_TOPIC_PARTITIONS: Final = "transaction.state.log.num.partitions"
TRANSACTIONS_TOPIC_REPLICATION_FACTOR: Final = "transaction.state.log.replication.factor"
TRANSACTIONS_TOPIC_MIN_ISR: Final = "transaction.state.log.min.isr"
TRANSACTIONS_TOPIC_SEGMENT_BYTES: Final = "transaction.state.log.segment.bytes"
BROKER_SESSION_TIMEOUT: Final = "broker.session.timeout.ms"
INTERNAL_TOPICS_GROW: Final = "internal.topics.grow.enable"
FLUSH_ON_COMMIT: Final = "log.flush.on.commit"
NEW_CLUSTER_SESSION_TIMEOUT_MS: Final = 6 * SECOND_MS
REPLICAS_WANTED: Final = 3
"""So many replicas a partition has where nobody says otherwise, if there are as many brokers."""


class ClusterSetting(NamedTuple):
    name: str
    default: int | bool
    low: int = 0
    high: int = INT32_MAX
    is_dynamic: bool = True
    """May be changed while the cluster runs; else it is what it was formatted with."""

    def read(self, text: str) -> int:
        """The value that the text stands for; ConfigError if it cannot be."""
        if isinstance(self.default, bool):
            return read_boolean(self.name, text)
        number = read_whole_number(self.name, text)
        if not self.low <= number <= self.high:
            raise ConfigError(f"{self.name} is {number}; it must lie between {self.low} and {self.high}")
        return number

    @property
    def default_text(self) -> str:
        return str(self.default).lower()


CLUSTER_SETTINGS: Final[Mapping[str, ClusterSetting]] = {
    setting.name: setting
    for setting in (
        ClusterSetting(MIN_INSYNC_REPLICAS, 1, low=1),
        ClusterSetting(UNCLEAN_ELECTION, False),
        ClusterSetting(NUM_PARTITIONS, 1, low=1, high=10_000),
        ClusterSetting(DEFAULT_REPLICATION_FACTOR, 1, low=1, high=1_000),
        ClusterSetting(OFFSETS_TOPIC_PARTITIONS, 50, low=1, high=10_000),
        ClusterSetting(OFFSETS_TOPIC_REPLICATION_FACTOR, 1, low=1, high=1_000),
        ClusterSetting(OFFSETS_TOPIC_SEGMENT_BYTES, 100 * MIB, low=1 * MIB),
        ClusterSetting(INTERNAL_TOPICS_GROW, False),
        # What a replica counts as stored decides what is committed: all replicas must mean the same by it.
        ClusterSetting(FLUSH_ON_COMMIT, True),
        ClusterSetting(TRANSACTIONS_TOPIC_PARTITIONS, 50, low=1, high=10_000),
        ClusterSetting(TRANSACTIONS_TOPIC_REPLICATION_FACTOR, 1, low=1, high=1_000),
        ClusterSetting(TRANSACTIONS_TOPIC_MIN_ISR, 1, low=1, high=1_000),
        ClusterSetting(TRANSACTIONS_TOPIC_SEGMENT_BYTES, 100 * MIB, low=1 * MIB),
        # A broker that is not heard counts on not being fenced before: it cannot learn of less in time.
        ClusterSetting(BROKER_SESSION_TIMEOUT, 9 * SECOND_MS, low=100, high=60 * MINUTE_MS, is_dynamic=False),
    )
}


def find_new_cluster_defaults(brokers: int) -> dict[str, str]:
    """The settings with which a new cluster of so many brokers is formatted, where nobody says otherwise.

    One replica may be missing and acks=all is still acknowledged: by two where there are three.  Of two
    brokers one must do alone: to want both would stop writing whenever one of them restarts.
    """
    replicas = max(1, min(REPLICAS_WANTED, brokers))
    return {
        DEFAULT_REPLICATION_FACTOR: str(replicas),
        OFFSETS_TOPIC_REPLICATION_FACTOR: str(replicas),
        MIN_INSYNC_REPLICAS: str(max(1, replicas - 1)),
        TRANSACTIONS_TOPIC_REPLICATION_FACTOR: str(replicas),
        TRANSACTIONS_TOPIC_MIN_ISR: str(max(1, replicas - 1)),
        BROKER_SESSION_TIMEOUT: str(NEW_CLUSTER_SESSION_TIMEOUT_MS),
        INTERNAL_TOPICS_GROW: "true",
    }
