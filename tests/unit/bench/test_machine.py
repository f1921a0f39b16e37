"""What others took from a case: by a /proc that a test has written, and by this machine's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.machine import Sample, compare_samples, take_sample

TICKS = os.sysconf("SC_CLK_TCK")
SPIN = "import time\nwhile time.process_time() < 0.5: pass\n"


class Proc:
    """A /proc of two cores."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.set_cpu()

    def set_cpu(self, user_s: float = 0, nice_s: float = 0, system_s: float = 0, steal_s: float = 0) -> None:
        columns = [user_s, nice_s, system_s, 1_000, 7, 5, 5, steal_s, 0, 0]
        told = "cpu  " + " ".join(str(int(each * TICKS)) for each in columns)
        (self.directory / "stat").write_text(f"{told}\ncpu0 1 1\ncpu1 1 1\nintr 12345\n")

    def set_process(self, pid: int, parent: int, cpu_s: float = 0, children_s: float = 0) -> None:
        folder = self.directory / str(pid)
        folder.mkdir(exist_ok=True)
        half, children = int(cpu_s * TICKS / 2), int(children_s * TICKS / 2)
        between = "0 " * 9
        (folder / "stat").write_text(
            f"{pid} (a (strange) name) S {parent} {between}{half} {half} {children} {children} 20 0\n"
        )

    def set_disks(self, **busy_ms: int) -> None:
        lines = [f"8 0 {name} 0 0 0 0 0 0 0 0 0 {busy} 0\n" for name, busy in busy_ms.items()]
        (self.directory / "diskstats").write_text("".join(lines))

    def sample(self, clock_s: float) -> Sample:
        return take_sample(root_pid=100, proc=self.directory)._replace(clock_s=clock_s)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    proc = Proc(tmp_path)
    proc.set_process(1, 0)
    proc.set_process(2, 0)
    proc.set_process(100, 1)
    return proc


def test_what_our_processes_and_their_children_spend_is_not_others(proc: Proc) -> None:
    proc.set_process(101, 100)
    proc.set_process(102, 101)
    before = proc.sample(0)
    proc.set_cpu(user_s=9, system_s=1)
    proc.set_process(100, 1, cpu_s=2, children_s=2)
    proc.set_process(101, 100, cpu_s=2)
    proc.set_process(102, 101, cpu_s=2, children_s=2)
    assert compare_samples(before, proc.sample(10)).others == 0.0


def test_one_of_ours_that_has_ended_counts_with_who_waited_for_it(proc: Proc) -> None:
    proc.set_process(101, 100, cpu_s=4)
    before = proc.sample(0)
    proc.set_cpu(user_s=2)
    (proc.directory / "101" / "stat").unlink()
    proc.set_process(100, 1, children_s=6)
    assert compare_samples(before, proc.sample(10)).others == 0.0


def test_strangers_are_others_and_the_kernel_is_not(proc: Proc) -> None:
    proc.set_process(50, 2)
    proc.set_process(60, 1)
    before = proc.sample(0)
    proc.set_cpu(user_s=4, nice_s=1, system_s=5)
    proc.set_process(50, 2, cpu_s=4)
    proc.set_process(60, 1, cpu_s=6)
    found = compare_samples(before, proc.sample(10))
    assert found.others == pytest.approx(6 / 20), "of two cores"
    assert found.share == found.others


def test_a_stranger_that_came_and_went_is_counted_too(proc: Proc) -> None:
    before = proc.sample(0)
    proc.set_cpu(user_s=5)
    assert compare_samples(before, proc.sample(10)).others == pytest.approx(0.25)


def test_stolen_time_disturbs_and_a_busy_disk_informs(proc: Proc) -> None:
    proc.set_disks(vda=1_000, vdb=0, loop0=0)
    before = proc.sample(0)
    proc.set_cpu(steal_s=2)
    proc.set_disks(vda=4_000, vdb=500, loop0=9_000)
    found = compare_samples(before, proc.sample(10))
    assert tuple(found) == pytest.approx((0.0, 0.1, 0.3))
    assert found.share == pytest.approx(0.1)
    assert str(found) == "others 0%, steal 10%, disk 30%"


def test_a_machine_that_says_nothing_of_disks_has_none(proc: Proc) -> None:
    assert compare_samples(proc.sample(0), proc.sample(1)).disk == 0.0


# --- this machine ------------------------------------------------------------------------------


def test_what_a_child_spends_is_our_own() -> None:
    before = take_sample()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert take_sample().own_s - before.own_s >= 0.4  # of half a second, counted in ticks of 10 ms


def test_what_a_stranger_spends_is_others() -> None:
    """Its parent ends before it does, so that it is nobody's child of ours."""
    before = take_sample()
    orphan = (
        "import os, sys\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n" + SPIN + "print('spent', flush=True)\n"
    )  # fmt: skip
    parent = subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True)
    parent.wait()
    assert parent.stdout is not None
    assert parent.stdout.readline() == "spent\n"
    parent.stdout.close()
    after = take_sample()
    found = compare_samples(before, after)
    assert found.others * after.cores * (after.clock_s - before.clock_s) >= 0.4
