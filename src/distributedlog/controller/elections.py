"""Who leads a partition, who may, and what happens to its in-sync replicas when brokers come and go.

A leader is sought, in this order, among replicas that are active:

| among                | when                                            | what it costs                     |
|----------------------|-------------------------------------------------|-----------------------------------|
| the ISR              | always; the present leader first                | nothing                           |
| the ELR              | the ISR is empty                                | nothing: they hold all committed  |
| the last leader      | ISR and ELR are empty: all restarted uncleanly  | what it had not on its disk       |
| any replica          | only in an unclean election (`unclean`)         | whatever it lacks                 |

Whoever is elected from outside the ISR becomes the ISR alone; from the last two rows it is RECOVERING, which
makes brokers put open transactions in order, and the ELR is forgotten.

Eligible leader replicas (ELR), from level 2 on.  The high watermark does not move while the ISR is smaller
than `min.insync.replicas`; so whoever leaves such an ISR still holds all that is committed, for as long as
the ISR stays so small.  Therefore:

    ISR of at least min ISR   ->  ELR is empty
    smaller                   ->  ELR = (ELR + old ISR) - new ISR - who restarted uncleanly

and the ISR may become empty.  The effective min ISR is no more than there are replicas, without those that a
move is adding.  At level 1 there is
no ELR, and an ISR keeps its last member, which alone may lead when it returns, however it returns.

A replica whose log is lost (`replica_faults`) is not elected by any of these.

Invariants: ISR and ELR are disjoint, both within the replicas; a leader is active and in the ISR; from level
2 on, who lost its disk is in neither and is no last leader.  The leader epoch rises with every change of
leader, to none too, and when a replica is dropped; the partition epoch with every record (see
`image.changed`).
"""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import NamedTuple

from distributedlog.controller.cluster_settings import min_insync_replicas
from distributedlog.controller.features import has_eligible_leaders
from distributedlog.controller.image import MetadataImage, Partition, Topic
from distributedlog.controller.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERING,
    PartitionChanged,
)
from distributedlog.model.ids import Uuid

Ids = tuple[int, ...]


class Election(Enum):
    ONLINE = "online"
    """Keep the leader if it may lead, else find another."""
    PREFERRED = "preferred"
    """The first replica, if it is in sync; else as ONLINE."""
    UNCLEAN = "unclean"
    """Elects as ONLINE does, and any active replica rather than none.  Where topics allow it this is done by
    `unclean`, which knows how far logs go; nowhere else but where somebody asks for it."""


class Rules(NamedTuple):
    """What a topic and the cluster's level say."""

    min_isr: int
    eligible_leaders: bool


def rules_of(image: MetadataImage, topic: str) -> Rules:
    return Rules(min_insync_replicas(image, topic), has_eligible_leaders(image.level))


class Departed(NamedTuple):
    """Who must not stay: out of the ISR, and how far out."""

    leaving: Collection[int] = ()
    """Fenced or shutting down: they keep what they have on disk, and so may be eligible."""
    unclean: Collection[int] = ()
    """Restarted without having said so: they may lack what was not yet on disk."""
    without_disk: Collection[int] = ()
    """Came with another disk, or will never come back: they hold nothing."""

    def from_isr(self, broker_id: int) -> bool:
        return broker_id in self.leaving or self.from_elr(broker_id)

    def from_elr(self, broker_id: int) -> bool:
        return broker_id in self.unclean or broker_id in self.without_disk


NOBODY = Departed()
MayLead = Callable[[int], bool]


class Target(NamedTuple):
    """Where a partition is going."""

    isr: Ids
    elr: Ids
    last_known: Ids
    leader: int
    recovery_state: int


def plan(
    partition: Partition,
    rules: Rules,
    may_lead: MayLead,
    *,
    election: Election = Election.ONLINE,
    isr: Ids | None = None,
    departed: Departed = NOBODY,
    recovery_state: int | None = None,
    order: Ids | None = None,
) -> Target:
    """Returns what becomes of the partition: its ISR (as it is, if not given) less who departed, then its
    leader.  An unclean election takes the first that may lead in `order`: the replicas', if none is given."""
    wanted = partition.isr if isr is None else isr
    target_isr = tuple(each for each in wanted if not departed.from_isr(each))
    elr = _eligible(partition, rules, target_isr, departed)
    last_known = tuple(each for each in partition.last_known_elr if each not in departed.without_disk)
    recovery = partition.recovery_state if recovery_state is None else recovery_state

    def may(broker_id: int) -> bool:
        return not departed.from_isr(broker_id) and may_lead(broker_id) and not partition.is_lost(broker_id)

    leader = _clean_leader(partition, target_isr or elr, may, election)
    if leader != NO_LEADER:
        if not target_isr:
            # Eligibility is judged anew: the minimum may have become one while nobody led.
            target_isr = (leader,)
            elr = _eligible(partition, rules, target_isr, departed)
        return Target(target_isr, elr, (), leader, recovery)
    is_last_known = not target_isr and not elr and len(last_known) == 1 and may(last_known[0])
    leader = last_known[0] if is_last_known else NO_LEADER
    if leader == NO_LEADER and election is Election.UNCLEAN:
        leader = next((each for each in order or partition.replicas if may(each)), NO_LEADER)
    if leader != NO_LEADER:
        return Target((leader,), (), (), leader, RECOVERING)
    if not rules.eligible_leaders:
        return Target(target_isr or partition.isr, (), (), NO_LEADER, recovery)
    if not target_isr:
        last_known = _last_leader(partition, departed) or last_known
    return Target(target_isr, elr, last_known, NO_LEADER, recovery)


def _eligible(partition: Partition, rules: Rules, isr: Ids, departed: Departed) -> Ids:
    if not rules.eligible_leaders or len(isr) >= min(rules.min_isr, partition.replication_factor):
        return ()
    held = {*partition.elr, *partition.isr}
    return tuple(
        each
        for each in partition.replicas
        if each in held and each not in isr and not departed.from_elr(each)
    )


def _clean_leader(partition: Partition, eligible: Ids, may: MayLead, election: Election) -> int:
    if election is Election.PREFERRED and partition.replicas[0] in eligible and may(partition.replicas[0]):
        return partition.replicas[0]
    if partition.leader in eligible and may(partition.leader):
        return partition.leader
    return next((each for each in partition.replicas if each in eligible and may(each)), NO_LEADER)


def _last_leader(partition: Partition, departed: Departed) -> Ids:
    leader = partition.leader
    if leader == NO_LEADER and partition.isr:
        leader = partition.isr[0]
    return () if leader == NO_LEADER or leader in departed.without_disk else (leader,)


def change_record(
    topic: Topic,
    partition_id: int,
    partition: Partition,
    target: Target,
    directories: tuple[Uuid, ...] | None = None,
    *,
    moved: Partition | None = None,
) -> PartitionChanged | None:
    """Returns what differs, or None if nothing does.  `moved` is the partition with other replicas, if a move
    begins or ends.  If it lacks one of those before, the leader is named also where it stays: whoever is
    dropped deletes its log, and if it is added again no fetch from before may count for the ISR."""

    def differing(now: Ids, before: Ids) -> list[int] | None:
        return None if now == before else list(now)

    same_recovery = target.recovery_state == partition.recovery_state
    after = partition if moved is None else moved
    same_leader = target.leader == partition.leader and set(partition.replicas) <= set(after.replicas)
    if directories is None:
        directories = after.directories
    record = PartitionChanged(
        topic_id=topic.topic_id,
        partition_id=partition_id,
        isr=differing(target.isr, partition.isr),
        leader=NO_LEADER_CHANGE if same_leader else target.leader,
        leader_recovery_state=NO_RECOVERY_CHANGE if same_recovery else target.recovery_state,
        eligible_leader_replicas=differing(target.elr, partition.elr),
        last_known_elr=differing(target.last_known, partition.last_known_elr),
        directories=None if directories == partition.directories else list(directories),
        replicas=differing(after.replicas, partition.replicas),
        removing_replicas=differing(after.removing, partition.removing),
        adding_replicas=differing(after.adding, partition.adding),
        original_replicas=differing(after.original, partition.original),
    )
    unchanged = PartitionChanged(topic_id=topic.topic_id, partition_id=partition_id)
    return None if record == unchanged else record


# --- over all partitions -----------------------------------------------------------------------


class Placed(NamedTuple):
    topic: Topic
    partition_id: int
    partition: Partition


def all_partitions(image: MetadataImage) -> Iterator[Placed]:
    for _, topic_id in sorted(image.topic_ids.items()):
        yield from partitions_of(image.topics[topic_id])


def partitions_of(topic: Topic) -> Iterator[Placed]:
    for partition_id, partition in sorted(topic.partitions.items(), key=lambda each: each[0]):
        yield Placed(topic, partition_id, partition)


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )


def sweep(
    image: MetadataImage,
    concerned: Callable[[Partition], bool],
    *,
    departed: Departed = NOBODY,
    arrived: int | None = None,
) -> list[PartitionChanged]:
    """The changes of all partitions that are concerned when brokers depart or one arrives."""

    def may_lead(broker_id: int) -> bool:
        return broker_id == arrived or image.is_active(broker_id)

    records = []
    rules: dict[str, Rules] = {}
    for topic, partition_id, partition in all_partitions(image):
        if not concerned(partition):
            continue
        if topic.name not in rules:
            rules[topic.name] = rules_of(image, topic.name)
        target = plan(partition, rules[topic.name], may_lead, departed=departed)
        record = change_record(topic, partition_id, partition, target)
        if record is not None:
            records.append(record)
    return records


def held_by(broker_id: int) -> Callable[[Partition], bool]:
    """It counts for something in the partition."""
    return lambda partition: (
        partition.leader == broker_id
        or broker_id in partition.isr
        or broker_id in partition.elr
        or broker_id in partition.last_known_elr
    )


def is_leaderless(partition: Partition) -> bool:
    return partition.leader == NO_LEADER
