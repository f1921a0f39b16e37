"""The face of administration: topics, settings, sizes, quotas, the quorum.  Without a loop: `blocking`.

    changes         when a change that failed is tried again
    topic_admin     topics made, deleted, given partitions; records deleted; leaders elected
    move_admin      partitions moved to other brokers
    config_admin    settings of topics, brokers and the cluster
    log_admin       log directories, sizes, producers
    cluster_admin   the quorum, features
    voter_admin     voters added and removed
    quota_admin     quotas of clients

Reads are tried again as long as that may help; of changes see `changes`.  What a broker does not serve
(settings, sizes) is reported as None where that is said: older and smaller ones do not have it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin import cluster as cluster_admin
from distributedlog.client.admin import configs as config_admin
from distributedlog.client.admin import log_dirs as log_admin
from distributedlog.client.admin import quotas as quota_admin
from distributedlog.client.admin import reassignments as move_admin
from distributedlog.client.admin import topics as topic_admin
from distributedlog.client.admin import voters as voter_admin
from distributedlog.client.admin.cluster import FeaturesView, QuorumView
from distributedlog.client.admin.configs import ConfigEdit, ConfigEntry, ConfigOf, of_topic
from distributedlog.client.admin.log_dirs import LogDirView, ProducerView
from distributedlog.client.admin.quotas import QuotaChange, QuotaComponent, QuotaEntity
from distributedlog.client.admin.reassignments import Reassignment
from distributedlog.client.admin.topics import AS_CONFIGURED, CreatedTopic, NewTopic
from distributedlog.client.admin.voters import VoterEndpoint
from distributedlog.client.errors import error_from
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import EARLIEST, LATEST, Isolation, OffsetAndTimestamp
from distributedlog.client.offsets import list_offsets
from distributedlog.client.options import ClientOptions
from distributedlog.client.view import ClusterView, TopicView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnknownTopicError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid

__all__ = ["AS_CONFIGURED", "Admin", "ConfigEntry", "CreatedTopic", "NewTopic", "OffsetRange", "Reassignment"]


class OffsetRange(NamedTuple):
    """Where a partition begins and ends."""

    start: int
    end: int


class Admin:
    """Works on a cluster that it is given, or opens one with `Admin.connect`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @classmethod
    def connect(cls, bootstrap: str, options: ClientOptions | None = None) -> "Admin":
        """Connects when it is first used."""
        return cls(Cluster(parse_bootstrap(bootstrap), options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.cluster.close()

    # --- the cluster ---------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterView:
        return await self.cluster.retrying(lambda: self.cluster.refresh(()))

    async def list_fenced_brokers(self) -> tuple[int, ...]:
        """Lists the brokers that are registered and take no part; none where brokers do not tell."""
        return await cluster_admin.list_fenced_brokers(self.cluster)

    async def list_broker_hosts(self) -> dict[int, str]:
        """Returns on which machine each living broker runs: two on one fail together."""
        return await cluster_admin.list_broker_hosts(self.cluster)

    async def unregister_broker(self, broker_id: int) -> None:
        """Has the controller forget a broker for good, alive or not, whatever it holds."""
        await cluster_admin.unregister_broker(self.cluster, broker_id)

    async def describe_quorum(self) -> QuorumView:
        return await cluster_admin.describe_quorum(self.cluster)

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid = ZERO_UUID,
        endpoints: Iterable[VoterEndpoint] = (),
        *,
        cluster_id: str | None = None,
    ) -> None:
        """Makes a controller a voter on the metadata, once it has caught up."""
        await voter_admin.add_raft_voter(
            self.cluster, voter_id, directory_id, endpoints, cluster_id=cluster_id
        )

    async def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid = ZERO_UUID, *, cluster_id: str | None = None
    ) -> None:
        """Takes a node out of the voters; one that leads hands over first."""
        await voter_admin.remove_raft_voter(self.cluster, voter_id, directory_id, cluster_id=cluster_id)

    async def describe_features(self) -> FeaturesView:
        return await cluster_admin.describe_features(self.cluster)

    async def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, validate_only: bool = False
    ) -> None:
        """All of them, or an error and none."""
        await cluster_admin.update_features(
            self.cluster, levels, allow_downgrade=allow_downgrade, validate_only=validate_only
        )

    async def describe_quotas(
        self, components: Sequence[QuotaComponent] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of those that meet all components; if `strict`, of those that have no other parts."""
        return await quota_admin.describe_quotas(self.cluster, components, strict=strict)

    async def alter_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> dict[QuotaEntity, DlogError | None]:
        """Returns what became of each entity: None if all of its change was made, or the reason why none
        was."""
        return await quota_admin.alter_quotas(self.cluster, changes, validate_only=validate_only)

    # --- topics --------------------------------------------------------------------------------

    async def list_topics(self, *, with_internal: bool = False) -> tuple[TopicView, ...]:
        view = await self.cluster.retrying(lambda: self.cluster.refresh(None))
        topics = (view.topics[name] for name in sorted(view.topics))
        return tuple(each for each in topics if with_internal or not each.is_internal)

    async def describe_topics(self, names: Collection[str]) -> tuple[TopicView, ...]:
        """Describes topics in the order of the names.  A partition without a leader is described as it is."""
        view = await self.cluster.retrying(lambda: self.cluster.refresh(set(names)))
        found = []
        for name in names:
            topic = view.topics.get(name)
            if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(f"there is no topic {name!r}")
            if topic.error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise error_from(topic.error, f"topic {name!r}")
            found.append(topic)
        return tuple(found)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | DlogError]:
        """Returns what became of each: created, or the reason why not."""
        return await topic_admin.create_topics(self.cluster, topics, validate_only=validate_only)

    async def create_topic(self, topic: NewTopic) -> CreatedTopic:
        outcome = (await self.create_topics([topic])).get(topic.name)
        if outcome is None:
            raise UnknownTopicError(f"the broker did not say what became of topic {topic.name!r}")
        if isinstance(outcome, DlogError):
            raise outcome
        return outcome

    async def delete_topics(self, names: Sequence[str]) -> dict[str, DlogError | None]:
        """Returns what became of each: None if it is gone, or the reason why not."""
        return await topic_admin.delete_topics(self.cluster, names)

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, DlogError | None]:
        """Raises the number of partitions, of each topic to its count in all; what became of each."""
        return await topic_admin.create_partitions(self.cluster, counts, validate_only=validate_only)

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, DlogError | None]:
        """Makes preferred replicas leaders, or, if `unclean`, any that is alive where there is no leader."""
        return await topic_admin.elect_leaders(self.cluster, partitions, unclean=unclean)

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, DlogError | None]:
        """Moves partitions to these replicas; None cancels a move.  What became of each."""
        return await move_admin.alter_reassignments(self.cluster, targets)

    async def list_reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Returns the moves under way."""
        return await move_admin.list_reassignments(self.cluster)

    # --- records -------------------------------------------------------------------------------

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await list_offsets(self.cluster, wanted, isolation)

    async def offset_ranges(self, topics: Sequence[TopicView]) -> dict[TopicPartition, OffsetRange]:
        """Returns the offset ranges of the partitions that have a leader."""
        led = [
            TopicPartition(topic.name, each.index)
            for topic in topics
            for each in topic.partitions
            if each.has_leader
        ]
        if not led:
            return {}
        starts = await self.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = await self.list_offsets(dict.fromkeys(led, LATEST))
        return {each: OffsetRange(starts[each].offset, ends[each].offset) for each in led}

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | DlogError]:
        """Returns where each partition begins now that what lay before the offset is gone, or the reason why
        not."""
        return await topic_admin.delete_records(self.cluster, before)

    async def describe_log_dirs(
        self,
        node_ids: Collection[int] | None = None,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[int, tuple[LogDirView, ...] | DlogError]:
        """The directories of each broker (None: of all), or the reason why it does not say."""
        return await log_admin.describe_log_dirs(self.cluster, node_ids, partitions)

    async def log_sizes(self, topics: Sequence[TopicView]) -> dict[TopicPartition, int] | None:
        """The bytes of each partition on its largest replica; None if no broker serves sizes."""
        return await log_admin.log_sizes(self.cluster, topics)

    async def describe_producers(self, partition: TopicPartition) -> tuple[ProducerView, ...]:
        """Those that the leader of a partition remembers."""
        return await log_admin.describe_producers(self.cluster, partition)

    # --- settings ------------------------------------------------------------------------------

    async def topic_configs(self, name: str) -> tuple[ConfigEntry, ...] | None:
        """All settings of a topic by name; None if the broker does not serve them."""
        return await config_admin.describe_configs(self.cluster, of_topic(name))

    async def describe_configs(
        self, whose: ConfigOf, names: Collection[str] | None = None, *, with_documentation: bool = False
    ) -> tuple[ConfigEntry, ...] | None:
        """All settings, or those named; None if the broker does not serve them."""
        return await config_admin.describe_configs(
            self.cluster, whose, names, with_documentation=with_documentation
        )

    async def alter_configs(
        self, changes: Mapping[ConfigOf, Sequence[ConfigEdit]], *, validate_only: bool = False
    ) -> dict[ConfigOf, DlogError | None]:
        """Returns what became of each: None if all of its edits were made, or the reason why none was."""
        return await config_admin.alter_configs(self.cluster, changes, validate_only=validate_only)

    async def list_config_resources(self, kinds: Collection[int] = ()) -> tuple[ConfigOf, ...]:
        """Returns what has settings, of these kinds, or of all."""
        return await config_admin.list_config_resources(self.cluster, kinds)
