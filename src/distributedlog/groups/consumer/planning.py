"""The group's epoch and its target: made anew when members, subscriptions or topics are others than before.

    refresh    looks patterns up again, as far as a turn allows, and raises the group's epoch if there is a
               reason to
    depart     raises the epoch for those who went, and does no more than that
    assign     makes the target of the group's epoch, if there is none yet
    advance    brings one member a step on

They write to a draft, in this order; each looks at what the one before has written.  The target is made
by whichever heartbeat comes first after the epoch rose: members that leave or expire only raise the epoch, so
that many of them that go at once cost one target.
"""

import hashlib
from collections import Counter
from typing import Final, NamedTuple

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer import records
from distributedlog.groups.consumer.assignors import ASSIGNORS, Reader
from distributedlog.groups.consumer.group import ConsumerGroup, Draft
from distributedlog.groups.consumer.patterns import TURN_MATCHES_MAX, Patterns, Resolution
from distributedlog.groups.consumer.reconciliation import reconcile
from distributedlog.groups.consumer.topics import TopicIdPartitions, Topics
from distributedlog.groups.turn import Turn

HASH_BYTES: Final = 8


class TopicLookup(NamedTuple):
    """What a coordinator sees in this turn."""

    topics: Topics
    patterns: Patterns


def refresh(
    draft: Draft,
    lookup: TopicLookup,
    turn: Turn,
    *,
    is_changed: bool,
    resolution: Resolution | None = None,
) -> None:
    """Refreshes the plan; `is_changed`: members or their subscriptions are others, else only a change of
    topics is a reason.  What the `resolution` found counts where a turn is too short to look it up."""
    is_changed |= _resolve_patterns(draft, lookup, turn, resolution)
    metadata_hash = hash_topics(draft.group, lookup.topics)
    if is_changed or metadata_hash != draft.group.metadata_hash:
        draft.write(records.make_group_record(draft.group_id, draft.group.epoch + 1, metadata_hash))


def bump_epoch(draft: Draft, lookup: TopicLookup) -> None:
    """Bumps the epoch; what patterns stand for by now is left to the next heartbeat: that one can be refused
    if it does not fit into an entry, and a deadline cannot."""
    _drop_unused_patterns(draft)
    metadata_hash = hash_topics(draft.group, lookup.topics)
    draft.write(records.make_group_record(draft.group_id, draft.group.epoch + 1, metadata_hash))


def _drop_unused_patterns(draft: Draft) -> list[str]:
    """Those that members have; the others are forgotten."""
    group = draft.group
    wanted = {member.pattern for member in group.members.values() if member.pattern is not None}
    for pattern in [each for each in group.patterns if each not in wanted]:
        draft.write(records.make_pattern_tombstone(group.group_id, pattern))
    return sorted(wanted)


def _resolve_patterns(draft: Draft, lookup: TopicLookup, turn: Turn, resolution: Resolution | None) -> bool:
    """Returns whether a pattern stands for other topics than before.  What takes too long for a turn stands
    for what it stood for, and is noted in the draft."""
    group = draft.group
    is_changed = False
    matches_left = TURN_MATCHES_MAX
    for pattern in _drop_unused_patterns(draft):
        version = lookup.topics.version
        topics, matches = lookup.patterns.find(pattern, lookup.topics, matches_left)
        matches_left -= matches
        if topics is None and resolution is not None:
            topics, version = resolution.found.get(pattern), resolution.version
        if topics is None:
            draft.unresolved.append(pattern)
            continue
        known = group.patterns.get(pattern)
        if known is None or known.topics != topics:
            draft.write(records.make_pattern_record(group.group_id, pattern, topics, version, turn.wall_ms))
            is_changed = True
    return is_changed


def hash_topics(group: ConsumerGroup, topics: Topics) -> int:
    """Hashes the topics that are subscribed to and are there, and how many partitions they have."""
    views = [view for name in sorted(group.subscribed_topics()) if (view := topics.named(name)) is not None]
    if not views:
        return 0
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for view in views:
        digest.update(view.topic_id.bytes16 + view.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)


def assign(draft: Draft, lookup: TopicLookup, turn: Turn) -> None:
    group = draft.group
    if group.epoch == group.target_epoch:
        return
    subscriptions = {member_id: group.resolve_topics(member) for member_id, member in group.members.items()}
    names = frozenset().union(*subscriptions.values())
    views = {name: view for name in sorted(names) if (view := lookup.topics.named(name)) is not None}
    readers = [
        Reader(
            member_id,
            member.instance_id,
            subscriptions[member_id] & views.keys(),
            group.target(member_id),
        )
        for member_id, member in group.members.items()
    ]
    targets = ASSIGNORS[choose_assignor(group, turn.config)](readers, views)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            draft.write(records.make_target_record(group.group_id, member_id, target))
    draft.write(records.make_target_epoch_record(group.group_id, group.epoch))


def choose_assignor(group: ConsumerGroup, config: GroupConfig) -> str:
    """The one that most members like who like any."""
    votes = Counter(
        member.assignor for member in group.members.values() if member.assignor in config.consumer_assignors
    )
    liked = max(votes.items(), key=lambda item: (item[1], item[0] or ""), default=None)
    return config.consumer_assignors[0] if liked is None or liked[0] is None else liked[0]


def advance(draft: Draft, member_id: str, owned: TopicIdPartitions | None) -> None:
    group = draft.group
    member = group.members[member_id]
    moved = reconcile(member, group.target(member_id), group.target_epoch, owned, group.is_free)
    if moved is not member:
        draft.write(records.make_current_record(group.group_id, moved))
