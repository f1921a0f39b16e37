"""Unclean elections: of replicas that may all lack acknowledged records, the one that lacks least.

A partition is *leaderless* if nobody of its ISR and ELR can lead.  Where the topic allows it
(`unclean.leader.election.enable`), or an operator asks for it, another replica leads then: the one whose log
goes furthest, by (epoch of its last batch, log end offset), as two replicas of one leader are compared.

How far logs go only their brokers know.  Each sees in its own image which of its partitions nobody leads, and
tells the ends of those logs with its heartbeats, for as long as that is so:

    nobody leads ──► brokers tell log ends ──► all candidates have told, or the wait is over ──► elected

A candidate is an active replica whose log is not lost.  Who has not told is behind everybody who has, and
then the order of the replicas decides: a broker of an earlier version tells nothing, and one that hangs is
not waited for longer than WAIT_PARTS of a session.  Replicas that are down are not waited for at all: whoever
would rather wait for them does not allow unclean elections.

SOFT STATE, all of it: who has no leader (the image says so, and is not walked for it), what was told, and
since when there is somebody to be elected.  What was told counts in the leader epoch and the broker epoch in
which it was told: a log that ended somewhere before its broker crashed may end elsewhere after.  A new
controller hears it all again with the next heartbeats.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from distributedlog.controller.cluster_settings import allows_unclean_election, session_timeout_ms
from distributedlog.controller.elections import Election, Ids, all_partitions, change_record, plan, rules_of
from distributedlog.controller.image import MetadataImage, Partition, Topic
from distributedlog.controller.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    PartitionChanged,
    TopicRemoved,
)
from distributedlog.controller.sessions.log_ends import LOG_ENDS_PER_HEARTBEAT_MAX, ReplicaLogEnd
from distributedlog.model.ids import Uuid
from distributedlog.protocol.schema import Message

WAIT_PARTS: Final = 3
"""Candidates have this part of a session timeout to tell how far their logs go."""
AT_ONCE: Final = 0

Key = tuple[Uuid, int]


class _Told(NamedTuple):
    broker_epoch: int
    last_epoch: int
    end_offset: int


class _Due(NamedTuple):
    """A partition that an unclean election would give a leader."""

    key: Key
    topic: Topic
    partition: Partition
    is_told: bool
    """Every candidate has told the end of its log."""


class UncleanElections:
    def __init__(self) -> None:
        self._leaderless: dict[Key, dict[int, _Told]] = {}
        self._since_ms: dict[Key, int] = {}
        self._found: tuple[MetadataImage, list[_Due]] | None = None

    def restart(self, image: MetadataImage) -> None:
        """Begins anew, as a new controller does."""
        self._leaderless = {
            (topic.topic_id, partition_id): {}
            for topic, partition_id, partition in all_partitions(image)
            if partition.leader == NO_LEADER
        }
        self._since_ms.clear()
        self._found = None

    def note_changes(self, messages: Iterable[Message]) -> None:
        """Notes who loses its leader, and who has one again, by these records."""
        for message in messages:
            if isinstance(message, PartitionChanged) and message.leader != NO_LEADER_CHANGE:
                key = (message.topic_id, message.partition_id)
                self._forget(key)
                if message.leader == NO_LEADER:
                    self._leaderless[key] = {}
            elif isinstance(message, TopicRemoved):
                for key in [key for key in self._leaderless if key[0] == message.topic_id]:
                    self._forget(key)

    def _forget(self, key: Key) -> None:
        self._leaderless.pop(key, None)
        self._since_ms.pop(key, None)
        self._found = None

    def note_log_ends(
        self, image: MetadataImage, broker_id: int, broker_epoch: int, ends: Sequence[ReplicaLogEnd]
    ) -> None:
        """Notes what a heartbeat tells; what is told of other partitions, or of before, is passed over."""
        for end in ends[:LOG_ENDS_PER_HEARTBEAT_MAX]:
            key = (end.topic_id, end.partition_id)
            told = self._leaderless.get(key)
            found = _find(image, key)
            if told is None or found is None:
                continue
            partition = found[1]
            if broker_id in partition.replicas and end.leader_epoch == partition.leader_epoch:
                told[broker_id] = _Told(broker_epoch, end.last_epoch, end.end_offset)
                self._found = None

    # --- electing ------------------------------------------------------------------------------

    def order(self, image: MetadataImage, key: Key, partition: Partition) -> Ids:
        """Returns the replicas of a leaderless partition, the one that is to lead first."""
        told = self._leaderless.get(key, {})

        def rank(broker_id: int) -> tuple[int, int]:
            found = told.get(broker_id)
            if found is None or not _is_current(image, broker_id, found):
                return (-2, -2)
            return (found.last_epoch, found.end_offset)

        return tuple(sorted(partition.replicas, key=rank, reverse=True))

    def next_deadline_ms(self, image: MetadataImage) -> int | None:
        """Returns when `elect` wants to be called."""
        wait_ms = session_timeout_ms(image) // WAIT_PARTS
        return min((self._deadline_ms(each, wait_ms) for each in self._find_due(image)), default=None)

    def _deadline_ms(self, due: _Due, wait_ms: int) -> int:
        """The wait begins when `elect` first sees the partition."""
        since_ms = self._since_ms.get(due.key)
        return AT_ONCE if due.is_told or since_ms is None else since_ms + wait_ms

    def elect(self, image: MetadataImage, now_ms: int) -> list[PartitionChanged]:
        """Elects where all candidates have told, or have been waited for long enough."""
        wait_ms = session_timeout_ms(image) // WAIT_PARTS
        records = []
        for due in self._find_due(image):
            self._since_ms.setdefault(due.key, now_ms)
            if self._deadline_ms(due, wait_ms) > now_ms:
                continue
            target = plan(
                due.partition,
                rules_of(image, due.topic.name),
                image.is_active,
                election=Election.UNCLEAN,
                order=self.order(image, due.key, due.partition),
            )
            record = change_record(due.topic, due.key[1], due.partition, target)
            if record is not None:
                records.append(record)
        return records

    def _find_due(self, image: MetadataImage) -> list[_Due]:
        """Once for each image, and for each thing that is told: there may be many without a leader."""
        if self._found is None or self._found[0] is not image:
            self._found = image, list(self._iterate_due(image))
        return self._found[1]

    def _iterate_due(self, image: MetadataImage) -> Iterator[_Due]:
        allowed: dict[str, bool] = {}
        for key, told in self._leaderless.items():
            found = _find(image, key)
            if found is None or found[1].leader != NO_LEADER:
                continue
            topic, partition = found
            if topic.name not in allowed:
                allowed[topic.name] = allows_unclean_election(image, topic.name)
            candidates = [
                each for each in partition.replicas if image.is_active(each) and not partition.is_lost(each)
            ]
            if allowed[topic.name] and candidates:
                is_told = all(each in told and _is_current(image, each, told[each]) for each in candidates)
                yield _Due(key, topic, partition, is_told)


def _find(image: MetadataImage, key: Key) -> tuple[Topic, Partition] | None:
    topic = image.topics.get(key[0])
    partition = None if topic is None else topic.partitions.get(key[1])
    return None if topic is None or partition is None else (topic, partition)


def _is_current(image: MetadataImage, broker_id: int, told: _Told) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.epoch == told.broker_epoch
