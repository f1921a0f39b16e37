"""Processes: killed with SIGKILL, stopped with SIGSTOP, ended in good order with SIGTERM.

kill-WHOM and stop-WHOM are the first two, term-WHOM and rolling-restart the third.
"""

import signal
from collections.abc import Callable, Mapping

from tests.chaos.nemeses.stage import Nemesis, Stage

RESTART_SECONDS = 20.0
"""How long a restarted broker is waited for: another fault may keep it from serving."""
Victims = Callable[[Stage], list[int]]

VICTIMS: Mapping[str, Victims] = {
    "leader": lambda stage: [stage.leader()],
    "controller": lambda stage: [stage.controller()],
    "coordinator": lambda stage: [stage.coordinator()],
    "transactions": lambda stage: [stage.transaction_coordinator()],
    "any": lambda stage: [stage.any_broker()],
    "minority": lambda stage: stage.chance.sample(stage.cluster.ids, (len(stage.cluster.ids) - 1) // 2),
    "all": lambda stage: list(stage.cluster.ids),
}


class Kill:
    def __init__(self, stage: Stage, victims: Victims) -> None:
        self._stage = stage
        self._victims = victims
        self._killed: list[int] = []

    def begin(self) -> str:
        self._killed = self._victims(self._stage)
        for node in self._killed:
            self._stage.cluster.note_end(node)
            self._stage.cluster.brokers[node].kill()
        return f"SIGKILL of {named(self._killed)}"

    def heal(self) -> None:
        self._stage.cluster.start_those_down(self._killed)


class Stop:
    def __init__(self, stage: Stage, victims: Victims) -> None:
        self._stage = stage
        self._victims = victims
        self._stopped: list[int] = []

    def begin(self) -> str:
        self._stopped = self._victims(self._stage)
        for node in self._stopped:
            self._stage.cluster.brokers[node].pause()
        return f"SIGSTOP of {named(self._stopped)}"

    def heal(self) -> None:
        for node in self._stopped:
            self._stage.cluster.brokers[node].go_on()


class Terminate:
    """SIGTERM; it is down when it has handed over and closed its logs."""

    def __init__(self, stage: Stage, victims: Victims) -> None:
        self._stage = stage
        self._victims = victims
        self._ended: list[int] = []

    def begin(self) -> str:
        for node in self._victims(self._stage):
            if end_in_order(self._stage, node):
                self._ended.append(node)
        return f"SIGTERM of {named(self._ended)}"

    def heal(self) -> None:
        self._stage.cluster.start_those_down(self._ended)


def end_in_order(stage: Stage, node: int) -> bool:
    """Ends a broker with SIGTERM, unless another fault has it."""
    broker = stage.cluster.brokers[node]
    if not broker.is_up or broker.is_stopped or not broker.serves():
        return False
    code = broker.stop(signal.SIGTERM)
    if code:
        stage.cluster.ended.append((node, code))
    return True


class RollingRestart:
    """Each broker is stopped with SIGTERM and started again, the next when it serves."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def begin(self) -> str:
        order = self._stage.chance.sample(self._stage.cluster.ids, len(self._stage.cluster.ids))
        done = []
        for node in order:
            if end_in_order(self._stage, node):
                broker = self._stage.cluster.brokers[node]
                broker.start()
                broker.serves(RESTART_SECONDS)
                done.append(node)
        return f"rolling restart of {named(done)}"

    def heal(self) -> None:
        """All were started again."""


def named(nodes: list[int]) -> str:
    return "broker " + ", ".join(map(str, nodes)) if nodes else "nobody"


def _kill(victims: Victims) -> Callable[[Stage], Nemesis]:
    return lambda stage: Kill(stage, victims)


def _stop(victims: Victims) -> Callable[[Stage], Nemesis]:
    return lambda stage: Stop(stage, victims)


def _terminate(victims: Victims) -> Callable[[Stage], Nemesis]:
    return lambda stage: Terminate(stage, victims)


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {
    **{f"kill-{whom}": _kill(victims) for whom, victims in VICTIMS.items()},
    **{f"stop-{whom}": _stop(victims) for whom, victims in VICTIMS.items()},
    **{f"term-{whom}": _terminate(VICTIMS[whom]) for whom in ("leader", "controller", "coordinator")},
    "rolling-restart": RollingRestart,
}
