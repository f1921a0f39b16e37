from collections.abc import Callable

from distributedlog.broker.cluster.leader_watch import LeaderWatch, SilentLeader
from distributedlog.broker.cluster.port_watch import LOOK_MS, Tried
from tests.simulation.loop import SimLoop

HEARTBEAT_MS = 200


class Stage:
    """Consensus that says whom it does not hear, and a port that answers when it is told to."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.alarms = 0
        self.leader: SilentLeader | None = None
        self.asked_silence_ms: int | None = None
        self.tries: list[tuple[int, Tried]] = []
        self.refused: list[SilentLeader] = []
        self.watch = LeaderWatch(
            self,
            lambda node_id, tried: self.tries.append((node_id, tried)),
            heartbeat_ms=HEARTBEAT_MS,
            clock=self,
            scheduler=self,
        )

    def find_silent_leader(self, silence_ms: int) -> SilentLeader | None:
        self.asked_silence_ms = silence_ms
        return self.leader

    def leader_refuses(self, leader: SilentLeader) -> None:
        self.refused.append(leader)

    def monotonic_ms(self) -> int:
        return self.loop.now_us // 1000

    def wall_ms(self) -> int:
        return self.monotonic_ms()

    def call_at(self, time_ms: int, callback: Callable[[], None]) -> None:
        self.alarms += 1
        self.loop.call_at(time_ms * 1000, callback)

    def post(self, callback: Callable[[], None]) -> None:
        self.loop.call_after(0, callback)

    def pass_looks(self, count: int = 1) -> None:
        self.loop.run_until(self.loop.now_us + count * LOOK_MS * 1000)


ONE = SilentLeader(1, 17)


def test_consensus_is_told_once_of_a_silent_leader_that_refuses() -> None:
    stage = Stage()
    stage.watch.take_following(True)
    stage.pass_looks(2)
    assert (stage.tries, stage.asked_silence_ms) == ([], 2 * HEARTBEAT_MS)
    stage.leader = ONE
    stage.pass_looks(3)
    ((node_id, tried),) = stage.tries  # one try at a time
    assert node_id == 1
    tried(True)
    stage.pass_looks(3)
    assert (stage.refused, len(stage.tries)) == ([ONE], 1)
    stage.leader = SilentLeader(1, 900)
    stage.pass_looks()
    assert len(stage.tries) == 2, "it was heard in between, and is silent again"


def test_one_that_does_not_refuse_is_tried_again() -> None:
    stage = Stage()
    stage.leader = ONE
    stage.watch.take_following(True)
    stage.pass_looks()
    stage.tries[0][1](False)
    stage.pass_looks()
    assert (len(stage.tries), stage.refused) == (2, [])


def test_who_follows_nobody_does_not_look_and_is_not_woken() -> None:
    stage = Stage()
    stage.leader = ONE
    stage.watch.take_following(False)
    assert stage.alarms == 0
    stage.watch.take_following(True)
    stage.watch.take_following(True)
    stage.watch.take_following(False)
    stage.pass_looks(5)
    assert (stage.tries, stage.alarms) == ([], 1)


def test_after_the_stop_nobody_is_told() -> None:
    stage = Stage()
    stage.leader = ONE
    stage.watch.take_following(True)
    stage.pass_looks()
    stage.watch.stop()
    stage.tries[0][1](True)
    stage.pass_looks(2)
    assert (len(stage.tries), stage.refused) == (1, [])
