"""The admin client for programs without an event loop.

It has a loop in a thread of its own, and may be used by several threads.  After a fork it begins anew.
"""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from distributedlog.client.admin.admin import Admin, OffsetRange
from distributedlog.client.admin.cluster import FeaturesView, QuorumView
from distributedlog.client.admin.configs import ConfigEdit, ConfigEntry, ConfigOf
from distributedlog.client.admin.log_dirs import LogDirView, ProducerView
from distributedlog.client.admin.quotas import QuotaChange, QuotaComponent, QuotaEntity
from distributedlog.client.admin.reassignments import Reassignment
from distributedlog.client.admin.topics import CreatedTopic, NewTopic
from distributedlog.client.admin.voters import VoterEndpoint
from distributedlog.client.faces.loop_thread import LoopThread, left_behind
from distributedlog.client.offset_specs import Isolation, OffsetAndTimestamp
from distributedlog.client.options import ClientOptions
from distributedlog.client.view import ClusterView, TopicView
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import ZERO_UUID, TopicPartition, Uuid

T = TypeVar("T")


class BlockingAdmin:
    """`Admin`, each call of which returns when it is done.  To be used with `with`."""

    def __init__(self, bootstrap: str, options: ClientOptions | None = None) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._admin = Admin.connect(bootstrap, options)
        self._thread = LoopThread("dlog-admin", self._begin_anew)

    def _begin_anew(self) -> None:
        left_behind(self._admin)
        self._admin = Admin.connect(self._bootstrap, self._options)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._thread.is_running:
            self._run(self._admin.close())
        self._thread.stop()

    def describe_cluster(self) -> ClusterView:
        return self._run(self._admin.describe_cluster())

    def list_topics(self, *, with_internal: bool = False) -> tuple[TopicView, ...]:
        return self._run(self._admin.list_topics(with_internal=with_internal))

    def describe_topics(self, names: Collection[str]) -> tuple[TopicView, ...]:
        return self._run(self._admin.describe_topics(names))

    def create_topic(self, topic: NewTopic) -> CreatedTopic:
        return self._run(self._admin.create_topic(topic))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | DlogError]:
        return self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Sequence[str]) -> dict[str, DlogError | None]:
        return self._run(self._admin.delete_topics(names))

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return self._run(self._admin.list_offsets(wanted, isolation))

    def offset_ranges(self, topics: Sequence[TopicView]) -> dict[TopicPartition, OffsetRange]:
        return self._run(self._admin.offset_ranges(topics))

    def topic_configs(self, name: str) -> tuple[ConfigEntry, ...] | None:
        return self._run(self._admin.topic_configs(name))

    def log_sizes(self, topics: Sequence[TopicView]) -> dict[TopicPartition, int] | None:
        return self._run(self._admin.log_sizes(topics))

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, DlogError | None]:
        return self._run(self._admin.create_partitions(counts, validate_only=validate_only))

    def elect_leaders(
        self, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, DlogError | None]:
        return self._run(self._admin.elect_leaders(partitions, unclean=unclean))

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, DlogError | None]:
        return self._run(self._admin.alter_reassignments(targets))

    def list_reassignments(self) -> dict[TopicPartition, Reassignment]:
        return self._run(self._admin.list_reassignments())

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | DlogError]:
        return self._run(self._admin.delete_records(before))

    def describe_log_dirs(
        self,
        node_ids: Collection[int] | None = None,
        partitions: Collection[TopicPartition] | None = None,
    ) -> dict[int, tuple[LogDirView, ...] | DlogError]:
        return self._run(self._admin.describe_log_dirs(node_ids, partitions))

    def describe_producers(self, partition: TopicPartition) -> tuple[ProducerView, ...]:
        return self._run(self._admin.describe_producers(partition))

    def describe_configs(
        self, whose: ConfigOf, names: Collection[str] | None = None, *, with_documentation: bool = False
    ) -> tuple[ConfigEntry, ...] | None:
        return self._run(self._admin.describe_configs(whose, names, with_documentation=with_documentation))

    def alter_configs(
        self, changes: Mapping[ConfigOf, Sequence[ConfigEdit]], *, validate_only: bool = False
    ) -> dict[ConfigOf, DlogError | None]:
        return self._run(self._admin.alter_configs(changes, validate_only=validate_only))

    def list_config_resources(self, kinds: Collection[int] = ()) -> tuple[ConfigOf, ...]:
        return self._run(self._admin.list_config_resources(kinds))

    def list_fenced_brokers(self) -> tuple[int, ...]:
        return self._run(self._admin.list_fenced_brokers())

    def list_broker_hosts(self) -> dict[int, str]:
        return self._run(self._admin.list_broker_hosts())

    def unregister_broker(self, broker_id: int) -> None:
        self._run(self._admin.unregister_broker(broker_id))

    def describe_quorum(self) -> QuorumView:
        return self._run(self._admin.describe_quorum())

    def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid = ZERO_UUID,
        endpoints: Iterable[VoterEndpoint] = (),
        *,
        cluster_id: str | None = None,
    ) -> None:
        self._run(self._admin.add_raft_voter(voter_id, directory_id, endpoints, cluster_id=cluster_id))

    def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid = ZERO_UUID, *, cluster_id: str | None = None
    ) -> None:
        self._run(self._admin.remove_raft_voter(voter_id, directory_id, cluster_id=cluster_id))

    def describe_features(self) -> FeaturesView:
        return self._run(self._admin.describe_features())

    def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, validate_only: bool = False
    ) -> None:
        self._run(
            self._admin.update_features(levels, allow_downgrade=allow_downgrade, validate_only=validate_only)
        )

    def describe_quotas(
        self, components: Sequence[QuotaComponent] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        return self._run(self._admin.describe_quotas(components, strict=strict))

    def alter_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> dict[QuotaEntity, DlogError | None]:
        return self._run(self._admin.alter_quotas(changes, validate_only=validate_only))
