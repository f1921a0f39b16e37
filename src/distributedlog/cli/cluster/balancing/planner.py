"""Which replicas and leaderships move so that every broker is within (`loads`).  Pure.

Steps are taken one by one, each the one that lessens the excess of all brokers together most:

    leadership   two replicas of a partition change places, and another leads: nothing is copied
    move         a replica goes to a broker that has none of its partition, in the same place of the list
    swap         two replicas of two brokers change sides: where no single move helps

Leaderships come first, and again after some moves: they are cheap.  A step is looked for where a broker is
furthest outside: among those of its replicas whose weight is nearest to what it has too much, and a few
brokers that have least (or, of a broker that has too little, the other way round).  So the work of a step is
bounded, whatever the size of the cluster.  Each step lessens the excess, so the steps end.

In the end every partition that was changed is put back if nobody is further outside for it: what one step
did and a later one made needless is no part of the plan.  What it moves is the difference between the first
and the last replicas of a partition, however many steps that took.

Never: two replicas of a partition on one broker; a replica to a broker that does not take part; a partition
that is pinned; fewer racks, or hosts, for a partition than it had.  Where nobody is outside, nothing moves.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distributedlog.cli.cluster.balancing.loads import (
    BYTES_OUT,
    DIMENSIONS,
    LEADERS,
    TOLERANCE_DEFAULT,
    ClusterLoad,
    Load,
    PartitionLoad,
    find_bands,
)
from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.model.ids import TopicPartition

GAIN_MIN: Final = 1e-7
"""A gain of less than this part of the mean is rounding."""
WIDTHS: Final = (12, 96)
"""How many replicas are looked at; the second if none of the first helps."""
SWAP_WIDTH: Final = 24
COUNTERPARTS: Final = 4
LOOKS: Final = 250
"""How often, at least, leaderships are looked at while all partitions move once."""
OUTSIDERS: Final = 12
"""How many brokers and dimensions a step is looked for at, the furthest outside first."""

Replicas = tuple[int, ...]
Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BalancePlan:
    before: ClusterLoad
    targets: Plan = field(default_factory=dict)
    """The replicas of every partition that changes."""

    @property
    def after(self) -> ClusterLoad:
        return self.before.with_replicas(self.targets)

    @property
    def leaderships(self) -> Plan:
        """Those that change nothing but who leads."""
        return {name: target for name, target in self.targets.items() if not self.added(name)}

    @property
    def moves(self) -> Plan:
        return {name: target for name, target in self.targets.items() if self.added(name)}

    def added(self, name: TopicPartition) -> set[int]:
        return set(self.targets[name]) - set(self.before.partitions[name].replicas)

    @property
    def move_count(self) -> int:
        """How many replicas are copied to another broker."""
        return sum(len(self.added(name)) for name in self.targets)

    @property
    def move_bytes(self) -> float:
        return sum(len(self.added(name)) * self.before.partitions[name].size_bytes for name in self.targets)


def plan_balance(
    cluster: ClusterLoad,
    tolerance: float = TOLERANCE_DEFAULT,
    moves_max: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> BalancePlan:
    """Returns the plan; `moves_max`: it copies at most so many replicas, those that help most; `is_over`:
    nobody wants the plan any more, and the search ends with what it has."""
    search = _Search(cluster, tolerance, is_over)
    moves_per_look = 1 + len(cluster.partitions) // LOOKS
    while search.shift_leaderships() | search.move(moves_per_look, moves_max):
        pass
    search.put_back()
    return BalancePlan(cluster, search.targets())


class _Step(NamedTuple):
    """`partition` changes `leaver` for `joiner`; or, if both have it, these two change places."""

    partition: int
    leaver: int
    joiner: int


class _Outside(NamedTuple):
    excess: float
    broker: int
    dimension: int
    is_over: bool


class _Search:
    """Where every replica is, as far as the search has come; partitions go by number."""

    def __init__(
        self, cluster: ClusterLoad, tolerance: float, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._is_over = is_over
        self._names = sorted(cluster.partitions)
        self._partitions: list[PartitionLoad] = [cluster.partitions[name] for name in self._names]
        self._of_replica: list[Vector] = [each.of_replica for each in self._partitions]
        self._of_leadership: list[Vector] = [each.of_leadership for each in self._partitions]
        self._of_leader = [_plus(*both) for both in zip(self._of_replica, self._of_leadership, strict=True)]
        self._replicas: list[Replicas] = [each.replicas for each in self._partitions]
        self._sites = cluster.brokers
        loads = cluster.by_broker()
        self._bands = find_bands(list(loads.values()), tolerance)
        self._limits = [(at, *band) for at, band in self._bands.items()]
        self._loads: dict[int, list[float]] = {broker: list(load) for broker, load in loads.items()}
        self._changed: set[int] = set()
        self.moved = 0
        """How many replicas are elsewhere than at first."""
        # By broker and dimension: (weight, partition), lightest first; in what only leaders have, leaders.
        self._sorted: dict[int, list[list[tuple[float, int]]]] = {}
        self._sort()

    def _sort(self) -> None:
        self._sorted = {broker: [[] for _ in DIMENSIONS] for broker in self._loads}
        for number, replicas in enumerate(self._replicas):
            if not self._partitions[number].is_pinned:
                for place, weight, broker in self._places(number, replicas):
                    self._sorted[broker][place].append((weight, number))
        for lists in self._sorted.values():
            for each in lists:
                each.sort()

    def _places(self, number: int, replicas: Replicas) -> Iterator[tuple[int, float, int]]:
        """Yields dimension, weight and broker of each list that a partition is in."""
        for at, broker in enumerate(replicas):
            if broker in self._loads:
                for dimension in self._bands:
                    weight = self._of_replica[number][dimension]
                    if dimension in (BYTES_OUT, LEADERS):
                        if at > 0:
                            continue
                        weight = self._of_leadership[number][dimension]
                    yield dimension, weight, broker

    def targets(self) -> Plan:
        return {self._names[number]: self._replicas[number] for number in sorted(self._changed)}

    # --- steps ---------------------------------------------------------------------------------

    def shift_leaderships(self) -> bool:
        is_changed = False
        while not self._is_over() and (step := self._find_leadership()) is not None:
            self._take(step)
            is_changed = True
        return is_changed

    def move(self, count: int, moves_max: int | None) -> bool:
        """Takes so many moves, or swaps, if there are any."""
        is_changed = False
        for _ in range(count):
            left = None if moves_max is None else moves_max - self.moved
            if self._is_over() or not self._move_once(left):
                break
            is_changed = True
        return is_changed

    def _move_once(self, left: int | None) -> bool:
        """Takes the move, or swap, that helps most where it is needed most."""
        outside = self._outside(range(len(DIMENSIONS)))
        if left is not None and left < 1:
            return False
        for width in WIDTHS:
            for each in outside:
                step = self._best(self._moves(each, width))
                if step is not None:
                    self._take(step)
                    return True
        return (left is None or left > 1) and any(map(self._swap, outside))

    def _find_leadership(self) -> _Step | None:
        outside = self._outside((BYTES_OUT, LEADERS))
        for width in WIDTHS:
            for each in outside:
                step = self._best(self._leaderships(each, width))
                if step is not None:
                    return step
        return None

    def _outside(self, dimensions: Iterable[int]) -> list[_Outside]:
        found = [
            _Outside(excess, broker, dimension, load[dimension] > self._bands[dimension].mean)
            for dimension in dimensions
            if dimension in self._bands
            for broker, load in self._loads.items()
            if (excess := self._bands[dimension].excess(load[dimension])) > GAIN_MIN
        ]
        found.sort(reverse=True)
        return found[:OUTSIDERS]

    def _leaderships(self, outside: _Outside, width: int) -> Iterator[_Step]:
        for source in self._sources(outside, COUNTERPARTS):
            for number in self._near(source, outside, width):
                for other in self._replicas[number][1:]:
                    if other in self._loads and (outside.is_over or other == outside.broker):
                        yield _Step(number, source, other)

    def _moves(self, outside: _Outside, width: int) -> Iterator[_Step]:
        for source in self._sources(outside, COUNTERPARTS):
            targets = self._targets(outside)
            for number in self._near(source, outside, width):
                for target in targets:
                    if target not in self._replicas[number]:
                        yield _Step(number, source, target)

    def _sources(self, outside: _Outside, count: int) -> list[int]:
        if outside.is_over:
            return [outside.broker]
        return self._ranked(outside.dimension, is_descending=True)[:count]

    def _targets(self, outside: _Outside) -> list[int]:
        if not outside.is_over:
            return [outside.broker]
        return self._ranked(outside.dimension, is_descending=False)[:COUNTERPARTS]

    def _ranked(self, dimension: int, *, is_descending: bool) -> list[int]:
        sign = -1 if is_descending else 1
        return sorted(self._loads, key=lambda broker: (sign * self._loads[broker][dimension], broker))

    def _near(self, source: int, outside: _Outside, width: int) -> list[int]:
        """Returns the partitions there whose weight is nearest to what is too much, or too little: most of
        them lighter, a few heavier."""
        wanted = abs(self._loads[outside.broker][outside.dimension] - self._bands[outside.dimension].mean)
        held = self._sorted[source][outside.dimension]
        at = bisect_right(held, (wanted, len(self._names)))
        return [number for _, number in held[max(0, at - width) : at + max(2, width // 4)]]

    def _best(self, steps: Iterable[_Step]) -> _Step | None:
        best, best_gain, best_bytes = None, GAIN_MIN, 0.0
        for step in steps:
            gain = self._gain(step.leaver, step.joiner, self._carried(step))
            if gain < best_gain:
                continue
            size = self._of_replica[step.partition][0]
            if (gain > best_gain * (1 + 1e-9) or size < best_bytes) and self._is_allowed(step):
                best, best_gain, best_bytes = step, gain, size
        return best

    def _carried(self, step: _Step) -> Vector:
        """Returns what goes from one broker to the other with a step."""
        replicas = self._replicas[step.partition]
        if step.joiner in replicas:
            return self._of_leadership[step.partition]
        is_leader = replicas[0] == step.leaver
        return (self._of_leader if is_leader else self._of_replica)[step.partition]

    def _gain(self, leaver: int, joiner: int, carried: Vector) -> float:
        """Returns by how much less all are outside when so much goes from one to the other."""
        losing, winning, gain = self._loads[leaver], self._loads[joiner], 0.0
        for dimension, low, high, mean in self._limits:
            weight = carried[dimension]
            if not weight:
                continue
            change = 0.0  # spelled out: this is where the time goes
            for amount, sign in (
                (losing[dimension], 1),
                (winning[dimension], 1),
                (losing[dimension] - weight, -1),
                (winning[dimension] + weight, -1),
            ):
                if amount > high:
                    change += sign * (amount - high)
                elif amount < low:
                    change += sign * (low - amount)
            gain += change / mean
        return gain

    def _is_allowed(self, step: _Step) -> bool:
        """Returns whether that keeps the partition's replicas as far apart as they are."""
        replicas = self._replicas[step.partition]
        if step.joiner in replicas:
            return True
        moved = tuple(step.joiner if each == step.leaver else each for each in replicas)
        return self._spread(moved) >= self._spread(replicas)

    def _spread(self, replicas: Replicas) -> tuple[int, int]:
        """Returns over how many racks, and hosts, replicas are spread: the more the better."""
        sites = [self._sites[each] for each in replicas if each in self._sites]
        return len({each.rack for each in sites}), len({each.host for each in sites})

    # --- swaps ---------------------------------------------------------------------------------

    def _swap(self, outside: _Outside) -> bool:
        """Takes the swap between this broker and the others that helps most, if one does."""
        best: tuple[_Step, _Step] | None = None
        best_gain = GAIN_MIN
        for source in self._sources(outside, COUNTERPARTS):
            for target in self._targets(outside):
                for pair in self._pairs(source, target, outside):
                    diff = _minus(self._carried(pair[0]), self._carried(pair[1]))
                    gain = self._gain(source, target, diff)
                    if gain > best_gain:
                        best, best_gain = pair, gain
        if best is None:
            return False
        for step in best:
            self._take(step)
        return True

    def _pairs(self, source: int, target: int, outside: _Outside) -> Iterator[tuple[_Step, _Step]]:
        """Yields swaps whose difference is nearest to what is too much at one and too little at the other."""
        if source == target:
            return
        dimension = outside.dimension
        wanted = abs(self._loads[outside.broker][dimension] - self._bands[dimension].mean)
        there = self._sorted[target][dimension]
        here = self._sorted[source][dimension]
        stride = max(1, len(here) // SWAP_WIDTH)
        for weight, number in here[::stride]:
            step = _Step(number, source, target)
            if target in self._replicas[number] or not self._is_allowed(step):
                continue
            at = bisect_left(there, (weight - wanted, -1))
            for _, other in there[max(0, at - 2) : at + 4]:
                back = _Step(other, target, source)
                if source not in self._replicas[other] and self._is_allowed(back):
                    yield step, back

    # --- taking steps, and back ----------------------------------------------------------------

    def _take(self, step: _Step) -> None:
        replicas = self._replicas[step.partition]
        other = {step.leaver: step.joiner, step.joiner: step.leaver}
        self._place(step.partition, tuple(other.get(each, each) for each in replicas))

    def _place(self, number: int, replicas: Replicas) -> None:
        old, first = self._replicas[number], self._partitions[number].replicas
        for sign, each in ((-1, old), (1, replicas)):
            for at, broker in enumerate(each):
                if broker in self._loads:
                    load = self._loads[broker]
                    carried = (self._of_replica if at else self._of_leader)[number]
                    for dimension, weight in enumerate(carried):
                        load[dimension] += sign * weight
        for dimension, weight, broker in self._places(number, old):
            held = self._sorted[broker][dimension]
            del held[bisect_left(held, (weight, number))]
        for dimension, weight, broker in self._places(number, replicas):
            insort(self._sorted[broker][dimension], (weight, number))
        self.moved += len(set(replicas) - set(first)) - len(set(old) - set(first))
        self._replicas[number] = replicas
        (self._changed.discard if replicas == first else self._changed.add)(number)

    def put_back(self) -> None:
        """Puts back what nobody is further outside without, what is most to copy first."""
        order = sorted(self._changed, key=lambda number: (-self._copied(number), number))
        for number in order:
            if self._is_over():
                return
            first, now = self._partitions[number].replicas, self._replicas[number]
            touched = {each for each in (*first, *now) if each in self._loads}
            before = self._excess(touched)
            self._place(number, first)
            if self._excess(touched) > before + 1e-12:
                self._place(number, now)

    def _copied(self, number: int) -> float:
        added = set(self._replicas[number]) - set(self._partitions[number].replicas)
        return len(added) * (1.0 + self._of_replica[number][0])

    def _excess(self, brokers: Iterable[int]) -> float:
        return sum(
            band.excess(self._loads[broker][dimension])
            for broker in sorted(brokers)
            for dimension, band in self._bands.items()
        )


def _plus(first: Load | Vector, second: Load | Vector) -> Vector:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _minus(first: Vector, second: Vector) -> Vector:
    return tuple(a - b for a, b in zip(first, second, strict=True))
