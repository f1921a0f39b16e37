"""Faults that lose records where the settings allow it, and nothing where they do not.

- outrun: the other brokers stand still while the leader goes on, alone; then it is killed and they go on.
  What it had acknowledged by itself (acks=1) nobody else has.
- leave-behind: a follower stands still until it is out of the ISR; then the leader is killed and the follower
  goes on.  It may lead only where unclean elections are allowed.
"""

import time
from collections.abc import Callable, Mapping

from tests.chaos.nemeses.stage import Nemesis, Stage

ALONE_SECONDS = 2.0
SHRINK_SECONDS_MAX = 15.0


class Outrun:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._leader = 0

    def begin(self) -> str:
        brokers = self._stage.cluster.brokers
        self._leader = self._stage.leader()
        others = [node for node in brokers if node != self._leader]
        for node in others:
            brokers[node].pause()
        time.sleep(ALONE_SECONDS)  # that is the fault: so long it is alone
        brokers[self._leader].kill()
        for node in others:
            brokers[node].go_on()
        return f"leader {self._leader} went on alone and was killed"

    def heal(self) -> None:
        self._stage.cluster.start_those_down([self._leader])


class LeaveBehind:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._leader = 0

    def begin(self) -> str:
        cluster = self._stage.cluster
        partition = self._stage.chance.randrange(self._stage.partitions)
        self._leader = cluster.leader(self._stage.topic, partition) or self._stage.any_broker()
        behind = [node for node in cluster.isr(self._stage.topic, partition) if node != self._leader][:1]
        for node in behind:
            cluster.brokers[node].pause()
        deadline = time.monotonic() + SHRINK_SECONDS_MAX
        while cluster.isr(self._stage.topic, partition) != [self._leader] and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(ALONE_SECONDS)  # what is acknowledged now, the follower never had
        cluster.brokers[self._leader].kill()
        for node in behind:
            cluster.brokers[node].go_on()
        return f"leader {self._leader} was killed when {behind} had long stood still"

    def heal(self) -> None:
        self._stage.cluster.start_those_down([self._leader])


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {"outrun": Outrun, "leave-behind": LeaveBehind}
