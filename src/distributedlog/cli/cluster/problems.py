"""Is a cluster well?  Facts in, problems out, each with what to do.  Pure.

| problem                  | when                                                      | severity |
|--------------------------|-----------------------------------------------------------|----------|
| `offline`                | a partition has no leader                                 | critical |
| `below_min_isr`          | too few in sync for acks=all                              | critical |
| `under_replicated`       | not all replicas are in sync                              | warning  |
| `few_replicas`           | an internal topic has fewer replicas than brokers allow   | warning  |
| `broker_unreachable`     | a broker that the cluster names, or replicas are on       | critical |
| `log_dir_failed`         | a broker says that a directory is out of use              | critical |
| `disk_full`              | less than a twentieth of a disk is free                   | warning  |
| `disk_full`              | no room for a batch: what is written there is refused     | critical |
| `unreadable_records`     | a coordinator skipped records of groups that it cannot read | warning |
| `corrupt_replica`        | records of a replica cannot be read any more              | critical |
| `no_controller`          | nobody leads the metadata                                 | critical |
| `quorum_degraded`        | a voter is far behind; another loss may stop it           | warning  |

What cannot be found out (an older broker does not serve sizes, say) is no problem.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.cli.cluster.min_isr import is_under_min_isr
from distributedlog.client.admin.cluster import QuorumReplica, QuorumView
from distributedlog.client.admin.log_dirs import LogDirView
from distributedlog.client.view import NO_NODE, ClusterView, PartitionView, TopicView
from distributedlog.model.cluster_settings import REPLICAS_WANTED
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnsupportedVersionError

QUORUM_LAG_MAX: Final = 1_000
"""Entries; a voter that is restarted is behind for a moment."""
QUORUM_SILENCE_MS: Final = 15_000
FREE_PARTS: Final = 20
ROOM_BYTES_MIN: Final = 1024 * 1024
"""About the largest batch that is accepted by default."""


class Severity(Enum):
    CRITICAL = "critical"
    WARNING = "warning"


class Problem(NamedTuple):
    severity: Severity
    kind: str
    subject: str
    message: str
    advice: str


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The critical ones first; of those alike the order stays."""
    return sorted(problems, key=lambda each: each.severity is not Severity.CRITICAL)


def find_topic_problems(
    topics: tuple[TopicView, ...], min_isr: Mapping[str, int], live: Collection[int]
) -> Iterator[Problem]:
    """Yields the problems of partitions; `min_isr` has the topics with partitions that are not all in sync,
    `live` the brokers that the cluster names."""
    for topic in topics:
        for partition in topic.partitions:
            subject = f"{topic.name}-{partition.index}"
            yield from _find_partition_problems(subject, partition, min_isr.get(topic.name, 1), live)


def explain_missing(partition: PartitionView, live: Collection[int]) -> str:
    """Says of each replica that is not in sync why, as far as that is known."""
    missing = [each for each in partition.replicas if each not in partition.isr]
    down = [each for each in missing if each not in live]
    offline = [each for each in missing if each in live and each in partition.offline]
    behind = [each for each in missing if each in live and each not in partition.offline]
    reasons = []
    if down:
        reasons.append(f"broker {_spelled(down)} is not in the cluster")
    if offline:
        reasons.append(f"broker {_spelled(offline)} cannot serve its log")
    if behind:
        reasons.append(f"broker {_spelled(behind)} is behind its leader")
    return ", ".join(reasons)


def _find_partition_problems(
    subject: str, partition: PartitionView, min_isr: int, live: Collection[int]
) -> Iterator[Problem]:
    missing = [each for each in partition.replicas if each not in partition.isr]
    where = f"replicas {_spelled(partition.replicas)}, in sync {_spelled(partition.isr)}"
    if missing:
        where += f": {explain_missing(partition, live)}"
    if not partition.has_leader:
        yield Problem(
            Severity.CRITICAL,
            "offline",
            subject,
            f"has no leader: {where}",
            f"start broker {_spelled(partition.isr or partition.replicas)}; if it runs, its log says why it "
            "cannot lead: bring its directory back, or ask for an unclean election",
        )
    elif is_under_min_isr(partition, min_isr):
        yield Problem(
            Severity.CRITICAL,
            "below_min_isr",
            subject,
            f"refuses acks=all, for which {min_isr} must be in sync: {where}",
            f"start broker {_spelled(missing)}, or lower min.insync.replicas",
        )
    elif partition.is_under_replicated:
        yield Problem(
            Severity.WARNING,
            "under_replicated",
            subject,
            f"{where}",
            f"look at broker {_spelled(missing)}: it is down, or falls behind",
        )


def find_internal_topic_problems(view: ClusterView, topics: tuple[TopicView, ...]) -> Iterator[Problem]:
    """Yields the internal topics that would not outlive a broker, though there are brokers enough."""
    wanted = min(REPLICAS_WANTED, len(view.brokers))
    for topic in topics:
        fewest = min((len(each.replicas) for each in topic.partitions), default=wanted)
        if topic.is_internal and fewest < wanted:
            yield Problem(
                Severity.WARNING,
                "few_replicas",
                topic.name,
                f"has partitions with {fewest} replica(s), and there are {len(view.brokers)} brokers",
                "groups and transactions on them stop with their broker; set "
                "internal.topics.grow.enable=true, and the controller gives them more",
            )


def find_broker_problems(
    view: ClusterView,
    topics: tuple[TopicView, ...],
    directories: Mapping[int, tuple[LogDirView, ...] | DlogError],
    fenced: Collection[int] = (),
) -> Iterator[Problem]:
    """Yields the problems of brokers; `fenced` are registered and take no part."""
    holding = {each for topic in topics for partition in topic.partitions for each in partition.replicas}
    for node_id in sorted(holding - view.brokers.keys()):
        yield Problem(
            Severity.CRITICAL,
            "broker_unreachable",
            f"broker {node_id}",
            "is not in the cluster, and replicas are on it",
            "start it, or see its log for why it does not register",
        )
    for node_id in sorted(set(fenced) - holding):
        yield Problem(
            Severity.CRITICAL,
            "broker_unreachable",
            f"broker {node_id}",
            "is registered, and takes no part in the cluster",
            "start it, or see its log for why it is fenced",
        )
    for node_id, found in sorted(directories.items()):
        if isinstance(found, UnsupportedVersionError):
            continue
        if isinstance(found, DlogError):
            yield Problem(
                Severity.CRITICAL,
                "broker_unreachable",
                f"broker {node_id}",
                f"does not answer: {found}",
                "see whether it runs, and whether it can be reached from here",
            )
            continue
        for directory in found:
            yield from _find_log_dir_problems(node_id, directory)
            yield from _find_unreadable_records(node_id, directory)
            yield from _find_corrupt_replicas(node_id, directory)


def _find_log_dir_problems(node_id: int, directory: LogDirView) -> Iterator[Problem]:
    subject = f"broker {node_id}, {directory.path}"
    if directory.error is not ErrorCode.NONE:
        yield Problem(
            Severity.CRITICAL,
            "log_dir_failed",
            subject,
            f"is out of use: {directory.error.name}",
            "see the disk and the broker's log; mend it and start the broker again",
        )
    elif 0 <= directory.usable_bytes * FREE_PARTS < directory.total_bytes:
        share = 100 * directory.usable_bytes / directory.total_bytes
        is_over = directory.usable_bytes < ROOM_BYTES_MIN
        yield Problem(
            Severity.CRITICAL if is_over else Severity.WARNING,
            "disk_full",
            subject,
            f"has {share:.1f} % free" + (": what is written there is refused" if is_over else ""),
            "make room, or lower the retention",
        )


def _find_unreadable_records(node_id: int, directory: LogDirView) -> Iterator[Problem]:
    for partition, replica in sorted(directory.replicas.items()):
        if replica.unreadable_records:
            yield Problem(
                Severity.WARNING,
                "unreadable_records",
                str(partition),
                f"has {replica.unreadable_records} records that its coordinator, broker {node_id}, cannot "
                "read and skipped",
                f"stop broker {node_id} and run `dlog log repair {directory.path}` there",
            )


def _find_corrupt_replicas(node_id: int, directory: LogDirView) -> Iterator[Problem]:
    for partition, replica in sorted(directory.replicas.items()):
        if replica.is_corrupt:
            yield Problem(
                Severity.CRITICAL,
                "corrupt_replica",
                str(partition),
                f"is corrupt on broker {node_id}, whose log says where; what is sound is served",
                "it heals by itself once another replica is in sync; without another, save what can be read "
                "and delete the records up to there",
            )


def find_quorum_problems(quorum: QuorumView | DlogError) -> Iterator[Problem]:
    if isinstance(quorum, UnsupportedVersionError):
        return
    if isinstance(quorum, DlogError) or quorum.leader_id == NO_NODE:
        reason = f": {quorum}" if isinstance(quorum, DlogError) else ""
        yield Problem(
            Severity.CRITICAL,
            "no_controller",
            "controllers",
            f"nobody leads the metadata{reason}",
            "start voters until a majority of them runs",
        )
        return
    for voter in quorum.voters:
        why = None if voter.node_id == quorum.leader_id else _describe_lag(quorum, voter)
        if why is not None:
            yield Problem(
                Severity.WARNING,
                "quorum_degraded",
                f"voter {voter.node_id}",
                why,
                "see whether it runs, and has its directory: without a majority of the voters nothing can "
                "be changed; one that lost its disk is formatted with --no-initial-controllers, removed from "
                "the voters and added again",
            )


def _describe_lag(quorum: QuorumView, voter: QuorumReplica) -> str | None:
    """Describes a lag by what the leader knows of it; its own entry says what time it is there."""
    if voter.log_end_offset < 0:
        return "has not been heard of by the present leader"
    if quorum.lag(voter) > QUORUM_LAG_MAX:
        return f"is {quorum.lag(voter)} entries behind"
    now_ms = max(
        (each.last_caught_up_ms for each in quorum.voters if each.node_id == quorum.leader_id), default=0
    )
    silent_ms = now_ms - voter.last_caught_up_ms
    if voter.last_caught_up_ms > 0 and silent_ms > QUORUM_SILENCE_MS:
        return f"had last caught up {silent_ms // 1000} s ago"
    return None


def _spelled(brokers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
