"""How busy the machine was beside what is measured: two samples of /proc, and the difference between them.

    others   CPU time of processes that are no descendants of this one.  The kernel's own threads are left
             out, and so are interrupts: they write back and deliver for the measured as well, and nobody can
             say how much
    steal    CPU time that a hypervisor gave to somebody else
    disk     how much of the time the busiest disk had something to do, whoever asked for it

`others` and `steal` are shares of all cores, and both are taken from the case: their sum says how much it was
disturbed.  The disk only informs: most cases use it themselves, and what they wrote reaches it later.

CPU time of our processes is that of the live ones and of the children that each of them has waited for.  So
nothing is lost when one ends; one that outlives its parent is a stranger from then on.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
KERNEL_THREADS: Final = 2
"""The process that is the parent of all threads of the kernel."""
USER, NICE, SYSTEM, STEAL = 0, 1, 2, 7
"""Columns of the first line of /proc/stat."""
PARENT, CPU_TIMES = 1, slice(11, 15)
"""Columns of /proc/PID/stat behind the name: the parent; user and system time, and that of ended children."""
IO_MS: Final = 12
"""Column of /proc/diskstats: milliseconds in which requests were under way."""
NO_DISKS: Final = ("loop", "ram", "zram", "dm-", "md")
"""What is not a disk itself but lies on one, or in memory."""


class Sample(NamedTuple):
    """Seconds since the machine was started; of the CPU those of all cores together."""

    clock_s: float
    cores: int
    cpu_s: float
    """The processor time of all processes, without interrupts."""
    steal_s: float
    own_s: float
    kernel_s: float
    disks_s: dict[str, float]


class Disturbance(NamedTuple):
    """Shares, from 0 to 1."""

    others: float
    steal: float
    disk: float

    @property
    def share(self) -> float:
        """What was taken from the case."""
        return self.others + self.steal

    def __str__(self) -> str:
        return f"others {self.others:.0%}, steal {self.steal:.0%}, disk {self.disk:.0%}"


def take_sample(root_pid: int | None = None, proc: Path = PROC) -> Sample:
    """`root_pid` and its descendants are our own processes; by default those of this process."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    lines = (proc / "stat").read_text().splitlines()
    columns = [int(each) for each in lines[0].split()[1:]]
    cores = sum(1 for line in lines if line.startswith("cpu")) - 1
    parents, ticks = _processes(proc)
    own = _descendants(parents, os.getpid() if root_pid is None else root_pid)
    kernel = _descendants(parents, KERNEL_THREADS) if KERNEL_THREADS in parents else set()
    return Sample(
        clock_s=time.monotonic(),
        cores=max(1, cores),
        cpu_s=(columns[USER] + columns[NICE] + columns[SYSTEM]) / ticks_per_second,
        steal_s=columns[STEAL] / ticks_per_second if len(columns) > STEAL else 0.0,
        own_s=sum(ticks[each] for each in own) / ticks_per_second,
        kernel_s=sum(ticks[each] for each in kernel) / ticks_per_second,
        disks_s=_disks(proc),
    )


def compare_samples(before: Sample, after: Sample) -> Disturbance:
    seconds = max(after.clock_s - before.clock_s, 1e-6)
    capacity = seconds * after.cores
    known = (after.own_s - before.own_s) + (after.kernel_s - before.kernel_s)
    others = (after.cpu_s - before.cpu_s) - known
    disks = [after.disks_s[name] - before.disks_s.get(name, 0.0) for name in after.disks_s]
    return Disturbance(
        others=_share(others, capacity),
        steal=_share(after.steal_s - before.steal_s, capacity),
        disk=_share(max(disks, default=0.0), seconds),
    )


def _share(part: float, whole: float) -> float:
    """Ticks are counted apart from each other, so that a difference may come out a little too small."""
    return min(1.0, max(0.0, part / whole))


def _processes(proc: Path) -> tuple[dict[int, int], dict[int, int]]:
    """The parent and the ticks of each."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            columns = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended since
            continue
        pid = int(entry.name)
        parents[pid] = int(columns[PARENT])
        ticks[pid] = sum(map(int, columns[CPU_TIMES]))
    return parents, ticks


def _descendants(parents: dict[int, int], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, [])
    return found & parents.keys()


def _disks(proc: Path) -> dict[str, float]:
    try:
        lines = (proc / "diskstats").read_text().splitlines()
    except FileNotFoundError:
        return {}
    rows = [line.split() for line in lines]
    return {row[2]: int(row[IO_MS]) / 1000 for row in rows if not row[2].startswith(NO_DISKS)}
