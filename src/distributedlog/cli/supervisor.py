"""Keeps child processes running: starts them, hears when they serve, starts again what dies, stops them all.

    state      event                      what is done                                        then
    starting   ready report               `ready` is told; the first time all serve `all_ready`  serving
    starting   exits by itself, never     gives up: what it needs is not there, and will not     (all stop)
               having served              be there a second later
    (a companion starts when all others have served once, is not waited for, and is always started again)
    starting   exits otherwise            waits: twice as long each time it dies before it serves  waiting
    serving    exits                      waits a second; or nothing, if none is restarted     waiting, down
    any        exits, and has lost what   nothing: without it, it would come back as another   down
               it needs (`lost`)
    waiting    the time is over           started                                             starting
    any        stop()                     SIGTERM, and SIGKILL after a deadline or a second stop()  stopping
    stopping   exits                      nothing                                             gone

One thread and no polling: the end of a process shows on its pidfd, its ready report on a pipe, a request to
stop on another pipe (so a signal handler may call `stop`).  What is imported here is small, since this
process stays beside the brokers for as long as they run.

Children end with us.  They ask the kernel for a SIGKILL when their parent dies (PR_SET_PDEATHSIG, between
fork and exec), which works even if we are killed by SIGKILL and they are stopped.  Each is the head of its
own process group, so that Ctrl-C in a terminal reaches us alone and they are stopped in order.
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.2
"""Where the kernel has no pidfd."""
REPORT_BYTES_MAX: Final = 64 * 1024
LOG_BYTES_MAX: Final = 16 * 1024 * 1024
TAIL_BYTES: Final = 8 * 1024
TAIL_LINES: Final = 8
PR_SET_PDEATHSIG: Final = 1
EXIT_LOST: Final = 3

Report = Mapping[str, Any]


class Plan(NamedTuple):
    """One child to keep running."""

    node_id: int
    arguments: tuple[str, ...]
    log_path: str
    is_companion: bool = False
    """It is started when all others serve, and nobody waits for it."""


class Death(NamedTuple):
    """How a child ended."""

    node_id: int
    status: int
    """The exit status as subprocess has it: negative for a signal."""
    log_lines: tuple[str, ...]
    """The last ones that it wrote."""
    restart_seconds: float | None
    """The time at which it is started again; None for never."""
    lost: str | None = None
    """Why it must not be started again, where that is the reason."""

    @property
    def how(self) -> str:
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-self.status).name}"
            return f"was killed by signal {-self.status}"
        return f"ended with exit code {self.status}"


class Observer(Protocol):
    """Who is told what happens."""

    def started(self, node_id: int, pid: int) -> None: ...

    def ready(self, node_id: int, report: Report) -> None: ...

    def companion_ready(self, report: Report) -> None: ...

    def all_ready(self, reports: Sequence[Report]) -> None:
        """Called once all but companions serve, and again whenever one that was restarted serves."""
        ...

    def died(self, death: Death) -> None: ...

    def stopping(self, is_hurried: bool) -> None: ...


class State(Enum):
    STARTING = auto()
    SERVING = auto()
    WAITING = auto()
    DOWN = auto()
    STOPPING = auto()
    GONE = auto()


class _Child:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = State.WAITING
        self.process: subprocess.Popen[bytes] | None = None
        self.pidfd: int | None = None
        self.pipe: int | None = None
        self.received = bytearray()
        self.report: Report | None = None
        self.has_served = False
        self.restart_at = 0.0
        self.early_deaths = 0
        self.was_killed = False

    @property
    def is_alive(self) -> bool:
        return self.process is not None


class Supervisor:
    """`command` makes the argument list of a child from its plan and the descriptor of its ready report."""

    def __init__(
        self,
        plans: Sequence[Plan],
        command: Callable[[Plan, int], Sequence[str]],
        observer: Observer,
        *,
        environment: Mapping[str, str] | None = None,
        restarts: bool = True,
        restart_seconds: float = RESTART_SECONDS,
        stop_seconds_max: float = STOP_SECONDS_MAX,
        lost: Callable[[Plan], str | None] = lambda plan: None,
    ) -> None:
        """`lost` says what a child has lost without which it must not be started again; None: nothing."""
        self._children = [_Child(plan) for plan in plans]
        self._nodes = [child for child in self._children if not child.plan.is_companion]
        self._command = command
        self._observer = observer
        self._environment = dict(os.environ if environment is None else environment)
        self._restarts = restarts
        self._restart_seconds = restart_seconds
        self._stop_seconds_max = stop_seconds_max
        self._lost = lost
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stops_asked = 0
        self._stops_done = 0
        self._kill_at: float | None = None
        self._failed_status: int | None = None
        self._before_exec = _end_with_parent()

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Supervises until stopped; returns 0 if all ended as they should, else 1 or the exit code of who
        could not start."""
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._drain_wakes)
        try:
            while not self._is_over():
                self._start_due()
                if self._is_over():
                    break  # who was due was left down
                for key, _ in self._selector.select(self._seconds_to_wait()):
                    key.data()
                self._poll_where_needed()
                self._stop_as_asked()
            return self._exit_code()
        finally:
            self._abandon()

    def stop(self) -> None:
        """Stops all, from a signal handler or any thread.  The second time it hurries."""
        self._stops_asked += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b"!")

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)

    def _is_over(self) -> bool:
        over = (State.GONE, State.DOWN)
        watched = self._nodes if self._stops_done == 0 else self._children
        return all(child.state in over for child in watched)

    def _seconds_to_wait(self) -> float | None:
        now = time.monotonic()
        due = [child.restart_at for child in self._children if self._may_start(child)]
        if self._kill_at is not None:
            due.append(self._kill_at)
        if any(child.is_alive and child.pidfd is None for child in self._children):
            due.append(now + POLL_SECONDS)
        return max(0.0, min(due) - now) if due else None

    def _exit_code(self) -> int:
        if self._failed_status is not None:
            return self._failed_status if self._failed_status > 0 else 1
        is_unclean = any(child.was_killed or child.state is State.DOWN for child in self._nodes)
        return 1 if is_unclean else 0

    # --- starting ------------------------------------------------------------------------------

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if not self._may_start(child) or child.restart_at > now:
                continue
            lost = self._lost(child.plan) if child.has_served else None
            if lost is None:
                self._start(child)
            else:
                self._leave_down(child, EXIT_LOST, lost)

    def _may_start(self, child: _Child) -> bool:
        if child.state is not State.WAITING:
            return False
        return not child.plan.is_companion or all(each.has_served for each in self._nodes)

    def _start(self, child: _Child) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(writer, True)
            with _open_log(child.plan.log_path) as log:
                child.process = subprocess.Popen(
                    list(self._command(child.plan, writer)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    pass_fds=(writer,),
                    process_group=0,
                    preexec_fn=self._before_exec,
                )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        child.state = State.STARTING
        child.pipe, child.received = reader, bytearray()
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._on_pipe(child))
        with contextlib.suppress(OSError):
            child.pidfd = os.pidfd_open(child.process.pid)
            self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._on_exit(child))
        self._observer.started(child.plan.node_id, child.process.pid)

    def _on_pipe(self, child: _Child) -> None:
        """A part of the ready report, or the end of it."""
        if child.pipe is None:
            return
        try:
            data = os.read(child.pipe, REPORT_BYTES_MAX)
        except BlockingIOError:
            return
        child.received += data
        if data and len(child.received) <= REPORT_BYTES_MAX:
            return
        self._close_pipe(child)
        report = _parse_report(child.received)
        if report is not None and child.state is State.STARTING:
            self._serves(child, report)

    def _serves(self, child: _Child, report: Report) -> None:
        child.state, child.report, child.has_served = State.SERVING, report, True
        if child.plan.is_companion:
            self._observer.companion_ready(report)
            return
        self._observer.ready(child.plan.node_id, report)
        reports = [each.report for each in self._nodes if each.report is not None]
        if len(reports) == len(self._nodes):
            self._observer.all_ready(reports)

    # --- dying ---------------------------------------------------------------------------------

    def _poll_where_needed(self) -> None:
        for child in self._children:
            if child.is_alive and child.pidfd is None:
                self._on_exit(child)

    def _on_exit(self, child: _Child) -> None:
        if child.process is None:
            return
        status = child.process.poll()
        if status is None:
            return
        self._on_pipe(child)  # a report that came just before the end still counts
        self._close_pipe(child)
        self._forget_process(child)
        if child.state is State.STOPPING:
            child.state = State.GONE
            if status not in (0, -signal.SIGTERM) and not child.was_killed:
                child.was_killed = True
                self._observer.died(_death(child, status, None))
            return
        self._after_death(child, status)

    def _after_death(self, child: _Child, status: int) -> None:
        if not child.has_served and status >= 0 and not child.plan.is_companion:
            child.state, self._failed_status = State.GONE, status
            self._observer.died(_death(child, status, None))
            self.stop()
        elif (lost := self._lost(child.plan)) is not None:
            self._leave_down(child, status, lost)
        elif not self._restarts:
            child.state = State.DOWN
            self._observer.died(_death(child, status, None))
        else:
            child.early_deaths = child.early_deaths + 1 if child.state is State.STARTING else 0
            doubled = self._restart_seconds * 2 ** min(max(0, child.early_deaths - 1), 16)
            delay = min(doubled, max(RESTART_SECONDS_MAX, self._restart_seconds))
            child.state, child.restart_at = State.WAITING, time.monotonic() + delay
            self._observer.died(_death(child, status, delay))

    def _leave_down(self, child: _Child, status: int, lost: str) -> None:
        child.state, self._failed_status = State.DOWN, EXIT_LOST
        self._observer.died(_death(child, status, None)._replace(lost=lost))

    # --- stopping ------------------------------------------------------------------------------

    def _stop_as_asked(self) -> None:
        if self._stops_asked > 0 and self._stops_done == 0:
            self._stops_done = 1
            self._observer.stopping(False)
            self._kill_at = time.monotonic() + self._stop_seconds_max
            for child in self._children:
                child.state = State.STOPPING if child.is_alive else State.GONE
                self._signal(child, signal.SIGTERM)
                self._signal(child, signal.SIGCONT)  # one that is stopped hears nothing else
        is_late = self._kill_at is not None and time.monotonic() >= self._kill_at
        if self._stops_done == 1 and (self._stops_asked > 1 or is_late):
            self._stops_done = 2
            self._kill_at = None
            self._observer.stopping(True)
            for child in self._children:
                child.was_killed = child.was_killed or child.is_alive
                self._signal(child, signal.SIGKILL)

    @staticmethod
    def _signal(child: _Child, number: signal.Signals) -> None:
        if child.process is not None:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)

    def _forget_process(self, child: _Child) -> None:
        child.process = None
        pidfd, child.pidfd = child.pidfd, None
        if pidfd is not None:
            self._selector.unregister(pidfd)
            os.close(pidfd)

    def _close_pipe(self, child: _Child) -> None:
        pipe, child.pipe = child.pipe, None
        if pipe is not None:
            self._selector.unregister(pipe)
            os.close(pipe)

    def _abandon(self) -> None:
        """Nothing is left running or open, whatever went wrong."""
        for child in self._children:
            process = child.process
            if process is not None:
                self._signal(child, signal.SIGKILL)
                process.wait()
                self._forget_process(child)
            self._close_pipe(child)
        self._selector.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)


def _parse_report(data: bytes | bytearray) -> Report | None:
    try:
        report = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def _death(child: _Child, status: int, restart_seconds: float | None) -> Death:
    return Death(child.plan.node_id, status, tail_of(child.plan.log_path), restart_seconds)


def _open_log(path: str) -> Any:
    """Opens the log to append to; one that has grown large is set aside first."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_size > LOG_BYTES_MAX:
            os.replace(path, f"{path}.1")
    return open(path, "ab", buffering=0)


def tail_of(path: str) -> tuple[str, ...]:
    """The last lines of a text file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-TAIL_LINES:]


def _end_with_parent() -> Callable[[], None]:
    """Returns what a child does between fork and exec.  Looked up beforehand: there nothing may be
    imported."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew what to do about it
            os._exit(1)

    return in_child
