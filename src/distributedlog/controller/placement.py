"""Which brokers hold a new partition.

Constraints: no broker holds two replicas of a partition; the first replica, which leads, is on an active
broker; a broker that is shutting down gets nothing.  Goals, in this order: replicas of a partition on
different hosts, and so in as many racks as there are; unfenced brokers before fenced ones; leaders, then
replicas, spread evenly over brokers.

A host is a machine: one of its brokers fails with the others.  It is inside a rack, so a host's name in two
racks stands for two of them.  Among hosts that the partition does not use yet the one is taken whose rack it
uses least: while a rack is unused all its hosts are, so this order costs no rack.  Where all brokers are on
one host it says nothing; nor does a rack that is not known.

Brokers are put into one ring that goes around the racks, and in each around its hosts:

    racks A: 1 4 7, B: 2 5, C: 3 6   ->   ring 1 2 3 4 5 6 7

Partition p is led by the active broker at `start + p`; its followers come from the ring behind the leader:
the nearest host of those that are best, and on it the broker that was given the fewest followers; where all
hosts are used already, that broker of all.  Each time the leaders have gone around once, followers are taken
from one place further, so that the brokers that share partitions with a given one vary: when it fails, its
load goes to all the others.  `start` and the first distance are drawn, or small topics would all lie on the
first brokers.

A partition that is there already gets one more replica by the same goals (`choose_replica`), and evenly by
what brokers hold.

Assignments by hand are checked, not improved.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from distributedlog.controller.image import MetadataImage
from distributedlog.model.errors import InvalidAssignmentError, InvalidReplicationFactorError
from distributedlog.model.ids import Uuid

Replicas = tuple[int, ...]
Load = tuple[int, ...]


class Chance(Protocol):
    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...

    def new_uuid(self) -> Uuid:
        """An identifier that nobody else has."""
        ...


class Location(NamedTuple):
    """Where a broker stands; hosts with the same name in different racks are different hosts."""

    rack: str | None
    host: str


class Candidate(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool
    host: str = ""
    """Empty: unknown, and so of its own."""

    @property
    def location(self) -> Location:
        return Location(self.rack, self.host or str(self.broker_id))


def candidates(image: MetadataImage) -> list[Candidate]:
    return [
        Candidate(broker.broker_id, broker.rack, broker.fenced, broker.placement_host)
        for _, broker in sorted(image.brokers.items())
        if not broker.in_controlled_shutdown
    ]


def place(
    brokers: Sequence[Candidate], partitions: int, replication_factor: int, chance: Chance
) -> list[Replicas]:
    """Replicas for so many partitions, the leader first."""
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"{replication_factor} replicas need as many brokers; {len(brokers)} can take one"
        )
    if len({each.location for each in brokers}) == 1:
        brokers = [each._replace(host="") for each in brokers]
    ring = _around_racks(brokers)
    active = [at for at, each in enumerate(ring) if not each.fenced]
    if not active:
        raise InvalidReplicationFactorError("every broker is fenced or shutting down: nobody could lead")
    start = chance.between(0, len(active) - 1)
    distance = chance.between(0, max(0, len(ring) - 2))
    placed = []
    given: Counter[int] = Counter()
    for number in range(partitions):
        leader_at = active[(start + number) % len(active)]
        shift = distance + number // len(active)
        placed.append(_with_followers(ring, leader_at, shift, replication_factor, given))
        given.update(placed[-1][1:])  # leaders are spread by their turns
    return placed


def _around_racks(brokers: Sequence[Candidate]) -> list[Candidate]:
    racks: dict[str, list[Candidate]] = {}
    for each in sorted(brokers):
        racks.setdefault(each.rack or "", []).append(each)
    return _around([_around_hosts(racks[name]) for name in sorted(racks)])


def _around_hosts(brokers: Sequence[Candidate]) -> list[Candidate]:
    hosts: dict[Location, list[Candidate]] = {}
    for each in brokers:
        hosts.setdefault(each.location, []).append(each)
    return _around(list(hosts.values()))


def _around(groups: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    longest = max((len(group) for group in groups), default=0)
    return [group[at] for at in range(longest) for group in groups if at < len(group)]


def _with_followers(
    ring: Sequence[Candidate], leader_at: int, shift: int, count: int, given: Mapping[int, int]
) -> Replicas:
    others = len(ring) - 1
    behind = [ring[(leader_at + 1 + (shift + step) % others) % len(ring)] for step in range(others)]
    leader = ring[leader_at]
    replicas = [leader.broker_id]
    uses = _Uses([leader.location])
    while len(replicas) < count:
        # min keeps the first of equals, which is the nearest in the ring.
        ranks = {each: (uses.rank(each.location), each.fenced) for each in behind}
        nearest = min(behind, key=ranks.__getitem__)
        is_shared = uses.is_used(nearest.location)
        beside = [
            each
            for each in behind
            if ranks[each] == ranks[nearest] and (is_shared or each.location == nearest.location)
        ]
        best = min(beside, key=lambda each: given.get(each.broker_id, 0))
        behind.remove(best)
        replicas.append(best.broker_id)
        uses.add(best.location)
    return tuple(replicas)


class _Uses:
    """How many replicas of one partition hosts and racks have."""

    def __init__(self, locations: Iterable[Location]) -> None:
        self._hosts: Counter[Location] = Counter()
        self._racks: Counter[str | None] = Counter()
        for each in locations:
            self.add(each)

    def add(self, location: Location) -> None:
        self._hosts[location] += 1
        self._racks[location.rack] += 1

    def is_used(self, location: Location) -> bool:
        return self._hosts[location] > 0

    def rank(self, location: Location) -> tuple[int, int]:
        """The lower the better."""
        return self._hosts[location], 0 if location.rack is None else self._racks[location.rack]


def choose_replica(
    free: Iterable[int],
    others: Iterable[int],
    locations: Mapping[int, Location],
    load: Mapping[int, Load],
) -> int:
    """Returns which of the `free` brokers takes one more replica of a partition that `others` hold; some of
    these may stand nowhere.  `load` says how much each of the free has already."""
    uses = _Uses(locations[each] for each in others if each in locations)
    return min(free, key=lambda each: (uses.rank(locations[each]), load[each], each))


def choose_leaving(held: Sequence[int], locations: Mapping[int, Location], load: Mapping[int, int]) -> int:
    """Returns which replica of a partition goes if one must: not the first, which is preferred as leader,
    unless it stands nowhere; then who shares a host, or a rack, with most of the others."""

    def rank(each: int) -> tuple[bool, bool, int, int, int, int]:
        if each not in locations:
            return (False, False, 0, 0, 0, each)
        uses = _Uses(locations[other] for other in held if other != each and other in locations)
        hosts, racks = uses.rank(locations[each])
        return (True, each == held[0], -hosts, -racks, -load.get(each, 0), each)

    return min(held, key=rank)


def check_assignment(image: MetadataImage, replicas: Replicas, replication_factor: int | None) -> None:
    """Replicas that someone chose by hand."""
    if not replicas:
        raise InvalidAssignmentError("an assignment has no replicas")
    if len(set(replicas)) != len(replicas):
        raise InvalidAssignmentError(f"the assignment {list(replicas)} names a broker twice")
    unknown = [each for each in replicas if each not in image.brokers]
    if unknown:
        raise InvalidAssignmentError(f"the assignment names the broker {unknown[0]}, which is not registered")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidAssignmentError(
            f"an assignment has {len(replicas)} replicas where the others have {replication_factor}"
        )


def active_of(image: MetadataImage, replicas: Iterable[int]) -> Replicas:
    return tuple(each for each in replicas if image.is_active(each))
