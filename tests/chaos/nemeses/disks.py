"""Disks: no room, syncs that fail, and a power cut, after which what was not synced is not there.

A broker whose sync has failed ends; what it had not synced by then is taken away before it is started again,
as the kernel may drop pages that it could not write.
"""

from collections.abc import Callable, Mapping

from tests.chaos.nemeses.processes import Victims, named
from tests.chaos.nemeses.stage import Nemesis, Stage
from tests.chaos.undo import cut_power

END_SECONDS = 5.0
"""How long a broker whose sync may have failed is waited for to end."""


class DiskFull:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._full: list[int] = []

    def begin(self) -> str:
        self._full = [self._stage.leader()]
        for node in self._full:
            self._stage.cluster.brokers[node].switches.is_full = True
        return f"no room on {named(self._full)}"

    def heal(self) -> None:
        for node in self._full:
            self._stage.cluster.brokers[node].switches.is_full = False
        self._stage.cluster.start_those_down(self._full)


class SyncError:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._failing = 0

    def begin(self) -> str:
        self._failing = self._stage.leader()
        self._stage.cluster.brokers[self._failing].switches.sync_fails = True
        return f"syncs of broker {self._failing} fail"

    def heal(self) -> None:
        cluster = self._stage.cluster
        broker = cluster.brokers[self._failing]
        if broker.ends_within(END_SECONDS):  # it hands over what it leads before
            cut_power(broker.undo, self._stage.chance)
        broker.switches.sync_fails = False
        cluster.start_those_down([self._failing])


class PowerCut:
    def __init__(self, stage: Stage, victims: Victims) -> None:
        self._stage = stage
        self._victims = victims
        self._cut: list[int] = []

    def begin(self) -> str:
        self._cut = self._victims(self._stage)
        brokers = self._stage.cluster.brokers
        for node in self._cut:
            self._stage.cluster.note_end(node)
            brokers[node].kill(wait=False)
        for node in self._cut:
            brokers[node].kill()
        undone = [cut_power(brokers[node].undo, self._stage.chance) for node in self._cut]
        writes, names = sum(each[0] for each in undone), sum(each[1] for each in undone)
        return f"power cut of {named(self._cut)}: {writes} writes and {names} names undone"

    def heal(self) -> None:
        self._stage.cluster.start_those_down(self._cut)


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {
    "disk-full": DiskFull,
    "sync-error": SyncError,
    "power-cut-one": lambda stage: PowerCut(stage, lambda stage: [stage.leader()]),
    "power-cut-all": lambda stage: PowerCut(stage, lambda stage: list(stage.cluster.ids)),
}
