"""Partitions of the network between brokers: which ways are cut, from whom to whom.

one way      from one broker nothing reaches the others, or one other; it hears them
minority     fewer than half of the brokers are cut from the rest
leader       the leader of a partition is cut from all others; likewise the controller
bridge       two halves do not reach each other; one broker reaches both
flapping     one broker is cut from all others for every other moment
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from random import Random

from tests.chaos.nemeses.stage import Nemesis, Stage
from tests.chaos.network import Way

Draw = Callable[[Stage], tuple[str, list[Way]]]
FLAP_SECONDS_MIN, FLAP_SECONDS_MAX = 0.2, 1.5


def both_ways(one: Sequence[int], other: Sequence[int]) -> list[Way]:
    return [*product(one, other), *product(other, one)]


def isolated(ids: Sequence[int], alone: Sequence[int]) -> list[Way]:
    return both_ways(alone, [node for node in ids if node not in alone])


def bridge(ids: Sequence[int], chance: Random) -> tuple[int, list[Way]]:
    """The broker that reaches all, and the ways that are cut between the others."""
    drawn = chance.sample(ids, len(ids))
    middle, rest = drawn[0], drawn[1:]
    return middle, both_ways(rest[: len(rest) // 2], rest[len(rest) // 2 :])


def _one_way(stage: Stage) -> tuple[str, list[Way]]:
    ids = stage.cluster.ids
    node = stage.any_broker()
    others = [each for each in ids if each != node]
    if stage.chance.random() < 0.5:
        others = [stage.chance.choice(others)]
    if stage.chance.random() < 0.5:
        return f"nothing from {others} reaches {node}", [(other, node) for other in others]
    return f"nothing from {node} reaches {others}", [(node, other) for other in others]


def _minority(stage: Stage) -> tuple[str, list[Way]]:
    ids = stage.cluster.ids
    alone = stage.chance.sample(ids, stage.chance.randint(1, (len(ids) - 1) // 2))
    return f"{alone} cut off", isolated(ids, alone)


def _leader(stage: Stage) -> tuple[str, list[Way]]:
    leader = stage.leader()
    return f"leader {leader} cut off", isolated(stage.cluster.ids, [leader])


def _controller(stage: Stage) -> tuple[str, list[Way]]:
    controller = stage.controller()
    return f"controller {controller} cut off", isolated(stage.cluster.ids, [controller])


def _bridge(stage: Stage) -> tuple[str, list[Way]]:
    middle, ways = bridge(stage.cluster.ids, stage.chance)
    return f"halves that only {middle} reaches both", ways


class Partition:
    def __init__(self, stage: Stage, draw: Draw, *, flapping: bool = False) -> None:
        self._stage = stage
        self._draw = draw
        self._flapping = flapping
        self._ways: list[Way] = []

    def begin(self) -> str:
        what, self._ways = self._draw(self._stage)
        if self._flapping:
            seconds = self._stage.chance.uniform(FLAP_SECONDS_MIN, FLAP_SECONDS_MAX)
            self._stage.cluster.network.flap(self._ways, seconds)
            return f"{what} for every other {seconds:.1f} s"
        self._stage.cluster.network.cut(self._ways)
        return what

    def heal(self) -> None:
        self._stage.cluster.network.join(self._ways)


def _made(draw: Draw, *, flapping: bool = False) -> Callable[[Stage], Nemesis]:
    return lambda stage: Partition(stage, draw, flapping=flapping)


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {
    "partition-one-way": _made(_one_way),
    "partition-minority": _made(_minority),
    "partition-leader": _made(_leader),
    "partition-controller": _made(_controller),
    "partition-bridge": _made(_bridge),
    "partition-flapping": _made(_minority, flapping=True),
}
