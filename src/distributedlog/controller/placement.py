"""Which brokers hold a new partition.

Constraints: no broker holds two replicas of a partition; the first replica, which leads, is on an active
broker; a broker that is shutting down gets nothing.  Goals, in this order: replicas of a partition spread
over racks; unfenced brokers before fenced ones; leaders, then replicas, spread evenly over brokers.

Brokers are put into one ring that goes around the racks:

    racks A: 1 4 7, B: 2 5, C: 3 6   ->   ring 1 2 3 4 5 6 7

Partition p is led by the active broker at `start + p`; its followers come from the ring behind the leader, a
broker of a rack that the partition uses least first.  Each time the leaders have gone around once, followers
are taken from one place further, so that the brokers that share partitions with a given one vary: when it
fails, its load goes to all the others.  `start` and the first distance are drawn, or small topics would all
lie on the first brokers.

Assignments by hand are checked, not improved.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from distributedlog.controller.image import MetadataImage
from distributedlog.model.errors import InvalidAssignmentError, InvalidReplicationFactorError
from distributedlog.model.ids import Uuid

Replicas = tuple[int, ...]


class Chance(Protocol):
    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...

    def new_uuid(self) -> Uuid:
        """An identifier that nobody else has."""
        ...


class Candidate(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


def candidates(image: MetadataImage) -> list[Candidate]:
    return [
        Candidate(broker.broker_id, broker.rack, broker.fenced)
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
    ring = _around_racks(brokers)
    active = [at for at, each in enumerate(ring) if not each.fenced]
    if not active:
        raise InvalidReplicationFactorError("every broker is fenced or shutting down: nobody could lead")
    start = chance.between(0, len(active) - 1)
    distance = chance.between(0, max(0, len(ring) - 2))
    placed = []
    for number in range(partitions):
        leader_at = active[(start + number) % len(active)]
        shift = distance + number // len(active)
        placed.append(_with_followers(ring, leader_at, shift, replication_factor))
    return placed


def _around_racks(brokers: Sequence[Candidate]) -> list[Candidate]:
    racks: dict[str, list[Candidate]] = {}
    for each in sorted(brokers):
        racks.setdefault(each.rack or "", []).append(each)
    ordered = [racks[name] for name in sorted(racks)]
    longest = max((len(rack) for rack in ordered), default=0)
    return [rack[at] for at in range(longest) for rack in ordered if at < len(rack)]


def _with_followers(ring: Sequence[Candidate], leader_at: int, shift: int, count: int) -> Replicas:
    others = len(ring) - 1
    behind = [ring[(leader_at + 1 + (shift + step) % others) % len(ring)] for step in range(others)]
    leader = ring[leader_at]
    replicas = [leader.broker_id]
    uses = {leader.rack: 1}
    while len(replicas) < count:
        # min keeps the first of equals, which is the nearest in the ring.
        best = min(behind, key=lambda each: (uses.get(each.rack, 0), each.fenced))
        behind.remove(best)
        replicas.append(best.broker_id)
        uses[best.rack] = uses.get(best.rack, 0) + 1
    return tuple(replicas)


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
