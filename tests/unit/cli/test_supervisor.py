"""The supervisor with real children: it starts, hears, restarts and stops them, and they end with it."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from distributedlog.cli.supervisor import Death, Plan, Report, Supervisor, tail_of

STAND_IN = Path(__file__).with_name("stand_in.py")
TIMEOUT_MS = 20_000

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
"""Newer Pythons warn of what the test runner's threads could do; the supervisor itself has one thread."""


def command(plan: Plan, ready_fd: int) -> list[str]:
    return [sys.executable, "-S", "-E", str(STAND_IN), str(ready_fd), *plan.arguments]


class Script:
    """Notes what it is told; what a test does about it is given as functions."""

    def __init__(self) -> None:
        self.pids: list[list[int]] = []
        """The pids of all children, each time that all served."""
        self.started_pids: list[int] = []
        self.ready_ids: list[int] = []
        self.companions: list[Report] = []
        self.when_companion_ready: Callable[[], None] = lambda: None
        self.deaths: list[Death] = []
        self.stops: list[bool] = []
        self.when_all_ready: Callable[[], None] = lambda: None
        self.when_died: Callable[[], None] = lambda: None
        self.when_stopping: Callable[[], None] = lambda: None

    def started(self, node_id: int, pid: int) -> None:
        self.started_pids.append(pid)

    def ready(self, node_id: int, report: Report) -> None:
        self.ready_ids.append(node_id)

    def companion_ready(self, report: Report) -> None:
        self.companions.append(report)
        self.when_companion_ready()

    def all_ready(self, reports: Sequence[Report]) -> None:
        self.pids.append([report["pid"] for report in reports])
        self.when_all_ready()

    def died(self, death: Death) -> None:
        self.deaths.append(death)
        self.when_died()

    def stopping(self, is_hurried: bool) -> None:
        self.stops.append(is_hurried)
        self.when_stopping()


def plans(directory: Path, *hows: str) -> list[Plan]:
    return [
        Plan(number, tuple(how.split(" ")), str(directory / f"node-{number}.log"))
        for number, how in enumerate(hows, 1)
    ]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_children_start_are_heard_and_stop(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve", "serve", "serve"), command, script)
    script.when_all_ready = supervisor.stop
    assert supervisor.run() == 0
    assert sorted(script.ready_ids) == [1, 2, 3]
    assert sorted(script.pids[0]) == sorted(script.started_pids)
    assert script.stops == [False]
    assert script.deaths == []
    assert not any(map(is_running, script.started_pids))
    assert tail_of(str(tmp_path / "node-2.log")) == ("serve begins",)


def test_a_child_that_is_killed_is_started_again_and_the_others_stay(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve", "serve"), command, script, restart_seconds=0.01)

    def kill_the_second_then_stop() -> None:
        if len(script.pids) == 1:
            os.kill(script.pids[0][1], signal.SIGKILL)
        else:
            supervisor.stop()

    script.when_all_ready = kill_the_second_then_stop
    assert supervisor.run() == 0
    before, after = script.pids
    assert after[0] == before[0]
    assert after[1] != before[1]
    (death,) = script.deaths
    assert death == Death(2, -signal.SIGKILL, ("serve begins",), 0.01)
    assert death.how == "was killed by SIGKILL"


def test_a_child_that_dies_before_it_serves_is_waited_for_longer_each_time(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, f"once {tmp_path}"), command, script, restart_seconds=0.01)
    script.when_all_ready = lambda: os.kill(script.pids[0][0], signal.SIGKILL)
    script.when_died = lambda: supervisor.stop() if len(script.deaths) == 4 else None
    assert supervisor.run() == 0
    assert [death.restart_seconds for death in script.deaths] == [0.01, 0.01, 0.02, 0.04]
    assert [death.status for death in script.deaths] == [-signal.SIGKILL, 5, 5, 5]


def test_a_child_that_served_is_never_waited_for_longer(tmp_path: Path) -> None:
    """However often it is killed: the wait is for what cannot start, not for who is tested hard."""
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve"), command, script, restart_seconds=0.01)
    script.when_all_ready = lambda: os.kill(script.pids[-1][0], signal.SIGKILL)
    script.when_died = lambda: supervisor.stop() if len(script.deaths) == 4 else None
    assert supervisor.run() == 0
    assert [death.restart_seconds for death in script.deaths] == [0.01, 0.01, 0.01, 0.01]


def test_a_child_that_refuses_to_start_ends_it_all_with_its_reason(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve", "refuse"), command, script)
    assert supervisor.run() == 2
    (death,) = script.deaths
    assert death.node_id == 2
    assert death.restart_seconds is None
    assert death.how == "ended with exit code 2"
    assert death.log_lines[-1] == "dlog: the settings are wrong"
    assert not any(map(is_running, script.started_pids))


def test_what_is_no_report_does_not_count_as_one(tmp_path: Path) -> None:
    script = Script()
    assert Supervisor(plans(tmp_path, "nonsense"), command, script).run() == 4
    assert script.ready_ids == []


def test_without_restarts_a_dead_child_stays_down_and_the_others_serve_on(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve", "serve"), command, script, restarts=False)
    script.when_all_ready = lambda: os.kill(script.pids[0][0], signal.SIGKILL)
    alive: list[bool] = []

    def look_and_stop() -> None:
        alive.append(is_running(script.pids[0][1]))
        supervisor.stop()

    script.when_died = look_and_stop
    assert supervisor.run() == 0
    assert alive == [True]
    assert len(script.started_pids) == 2


def test_when_all_are_down_for_good_it_ends(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve"), command, script, restarts=False)
    script.when_all_ready = lambda: os.kill(script.pids[0][0], signal.SIGKILL)
    assert supervisor.run() == 1


def test_one_that_does_not_stop_is_killed_when_asked_twice(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "stubborn", "serve"), command, script, stop_seconds_max=60)
    script.when_all_ready = supervisor.stop
    script.when_stopping = lambda: supervisor.stop() if script.stops == [False] else None
    begun = time.monotonic()
    assert supervisor.run() == 1
    assert time.monotonic() - begun < 30
    assert script.stops == [False, True]
    assert not any(map(is_running, script.started_pids))


def test_one_that_does_not_stop_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "stubborn"), command, script, stop_seconds_max=0.05)
    script.when_all_ready = supervisor.stop
    assert supervisor.run() == 1
    assert script.stops == [False, True]


def test_a_child_that_is_paused_can_be_stopped(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve"), command, script)

    def pause_and_stop() -> None:
        os.kill(script.pids[0][0], signal.SIGSTOP)
        supervisor.stop()

    script.when_all_ready = pause_and_stop
    assert supervisor.run() == 0


def test_when_it_fails_nothing_is_left_running(tmp_path: Path) -> None:
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve", "serve"), command, script)

    def fail() -> None:
        raise RuntimeError("the observer is broken")

    script.when_all_ready = fail
    with pytest.raises(RuntimeError, match="broken"):
        supervisor.run()
    assert not any(map(is_running, script.started_pids))


@pytest.mark.parametrize("paused", [False, True])
def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path, paused: bool) -> None:
    """Children die that are stopped, too, which could not notice anything themselves."""
    program = "import sys; from tests.unit.cli.test_supervisor import announce; announce(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        handles = [os.pidfd_open(pid) for pid in pids]
        if paused:
            os.kill(pids[0], signal.SIGSTOP)
        parent.kill()
        ends = select.poll()
        for handle in handles:
            ends.register(handle, select.POLLIN)
        while handles:
            ended = ends.poll(TIMEOUT_MS)
            assert ended, "a child outlived its supervisor"
            for handle, _ in ended:
                ends.unregister(handle)
                handles.remove(handle)
                os.close(handle)


def announce(directory: str) -> None:
    """Runs a supervisor that prints its children's pids, until it is killed."""
    script = Script()
    script.when_all_ready = lambda: print(json.dumps(script.pids[0]), flush=True)
    Supervisor(plans(Path(directory), "serve", "serve"), command, script).run()


def test_a_log_that_has_grown_large_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributedlog.cli.supervisor.LOG_BYTES_MAX", 10)
    (tmp_path / "node-1.log").write_text("what was said long ago\n")
    script = Script()
    supervisor = Supervisor(plans(tmp_path, "serve"), command, script)
    script.when_all_ready = supervisor.stop
    assert supervisor.run() == 0
    assert (tmp_path / "node-1.log").read_text() == "serve begins\n"
    assert (tmp_path / "node-1.log.1").read_text() == "what was said long ago\n"


def test_the_tail_of_a_long_log_is_its_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(10_000)) + b"\n  \n\xff end")
    assert tail_of(str(path))[-2:] == ("line 9999", "� end")
    assert len(tail_of(str(path))) == 8
    assert tail_of(str(tmp_path / "absent")) == ()


def test_a_child_that_lost_what_it_needs_is_left_down_and_the_others_serve_on(tmp_path: Path) -> None:
    script = Script()
    lost: dict[int, str] = {}
    supervisor = Supervisor(
        plans(tmp_path, "serve", "serve"), command, script, restart_seconds=0.01,
        lost=lambda plan: lost.get(plan.node_id),
    )  # fmt: skip

    def lose_and_kill_the_second() -> None:
        lost[2] = "its directory is gone"
        os.kill(script.pids[0][1], signal.SIGKILL)

    script.when_all_ready = lose_and_kill_the_second
    script.when_died = supervisor.stop
    assert supervisor.run() == 3
    (death,) = script.deaths
    assert (death.node_id, death.restart_seconds, death.lost) == (2, None, "its directory is gone")
    assert len(script.started_pids) == 2
    assert not any(map(is_running, script.started_pids))


def test_what_is_lost_while_a_child_waits_to_be_started_again_counts_too(tmp_path: Path) -> None:
    script = Script()
    looks: list[int] = []

    def lost(plan: Plan) -> str | None:
        looks.append(plan.node_id)
        return "gone" if len(looks) > 1 else None

    supervisor = Supervisor(plans(tmp_path, "serve"), command, script, restart_seconds=0.01, lost=lost)
    script.when_all_ready = lambda: os.kill(script.pids[0][0], signal.SIGKILL)
    assert supervisor.run() == 3
    assert [death.lost for death in script.deaths] == [None, "gone"]
    assert len(script.started_pids) == 1
