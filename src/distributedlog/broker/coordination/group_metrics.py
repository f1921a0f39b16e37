"""What a scrape shows of the groups that this broker coordinates.

    dlog_groups                 by type and state          how many there are
    dlog_group_members          by group                   members now
    dlog_group_rebalances       by group                   generations, or epochs, that it has had
    dlog_group_commits          by group                   committed offsets that were acknowledged
    dlog_group_member_bytes                                what members hold in all
    dlog_coordinators_loading                              partitions whose groups are being read back
    dlog_coordinator_unreadable_records                    records that could not be read and were skipped

At most GROUPS_MAX groups have a name here; all others are added up as "(other)".  A group that has gone, or
has another coordinator, has no samples any more: its names make room.  Rebalances are those of the group and
go on where they were after a failover; commits are counted by this broker since it coordinates the group.

How far behind a group is, is not among these: what it has read is known here, and what there is to read by
the leaders of its partitions.  `dlog group lag` asks both.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from distributedlog.broker.observability.metrics import OTHER, Family, FamilyKind, Sample, one
from distributedlog.groups.directory import CLASSIC, CONSUMER
from distributedlog.groups.machine import GroupMachine
from distributedlog.groups.requests import CommitReply, Reply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.ports.executor import Done, Outcome

GROUPS_MAX: Final = 1_000


class GroupSample(NamedTuple):
    group_id: str
    type: str
    state: str
    members: int
    generation: int


class GroupMetrics:
    """Counts on the data loop.  `machines` are the active ones; `loading` how many are not yet."""

    def __init__(
        self,
        machines: Callable[[], Iterable[GroupMachine]],
        loading: Callable[[], int],
        unreadable: Callable[[], int] = lambda: 0,
        *,
        groups_max: int = GROUPS_MAX,
    ) -> None:
        self._machines = machines
        self._loading = loading
        self._unreadable = unreadable
        self._groups_max = groups_max
        self._commits: dict[str, int] = {}

    def count_commits(self, group_id: str, done: Done[Reply]) -> Done[Reply]:
        """Returns a `done` that counts the offsets that were committed, and calls the given one."""

        def counted(outcome: Outcome[Reply]) -> None:
            if outcome.error is None and isinstance(reply := outcome.value(), CommitReply):
                self._committed(group_id, reply.errors.count(ErrorCode.NONE))
            done(outcome)

        return counted

    def _committed(self, group_id: str, count: int) -> None:
        name = group_id if group_id in self._commits or len(self._commits) < self._groups_max else OTHER
        self._commits[name] = self._commits.get(name, 0) + count

    # --- a scrape ------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        states: dict[tuple[str, str], int] = {}
        members: dict[str, int] = {}
        generations: dict[str, int] = {}
        living: set[str] = set()
        for sample in self._samples():
            key = (sample.type, sample.state)
            states[key] = states.get(key, 0) + 1
            living.add(sample.group_id)
            name = sample.group_id if len(members) < self._groups_max else OTHER
            members[name] = members.get(name, 0) + sample.members
            generations[name] = generations.get(name, 0) + sample.generation
        self._commits = {name: n for name, n in self._commits.items() if name in living or name == OTHER}
        gauge, counter = FamilyKind.GAUGE, FamilyKind.COUNTER
        by_state = [Sample({"type": kind, "state": state}, n) for (kind, state), n in states.items()]
        yield Family(gauge, "dlog_groups", "Groups that this broker coordinates.", by_state)
        yield Family(gauge, "dlog_group_members", "Members of a group.", _by_group(members))
        yield Family(
            counter, "dlog_group_rebalances", "Generations that a group has had.", _by_group(generations)
        )
        yield Family(
            counter, "dlog_group_commits", "Committed offsets of a group that were acknowledged.",
            _by_group(self._commits),
        )  # fmt: skip
        held = sum(machine.member_bytes.total for machine in self._machines())
        yield one(gauge, "dlog_group_member_bytes", "Bytes that members of groups hold.", held)
        loading = self._loading()
        yield one(gauge, "dlog_coordinators_loading", "Coordinators that read their groups back.", loading)
        yield one(
            gauge, "dlog_coordinator_unreadable_records", "Records of groups that were skipped: unreadable.",
            self._unreadable(),
        )  # fmt: skip

    def _samples(self) -> Iterator[GroupSample]:
        for machine in self._machines():
            for group in machine.groups.values():
                yield GroupSample(
                    group.group_id, CLASSIC, group.state, len(group.members), max(group.generation, 0)
                )
            for consumer in machine.consumers.by_id.values():
                yield GroupSample(
                    consumer.group_id, CONSUMER, consumer.state, len(consumer.members), consumer.epoch
                )
            for group_id in machine.offsets.groups():
                if group_id not in machine.groups and group_id not in machine.consumers.by_id:
                    yield GroupSample(group_id, CLASSIC, "Empty", 0, 0)


def _by_group(counts: dict[str, int]) -> list[Sample]:
    return [Sample({"group": name}, count) for name, count in counts.items()]
