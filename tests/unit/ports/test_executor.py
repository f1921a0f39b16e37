import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distributedlog.ports.executor import ChildProcess, Executor, Outcome, SystemExecutor
from tests.simulation.executor import InlineExecutor

WAIT_S = 30.0


@pytest.fixture(params=["inline", "system"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    executor: Executor = InlineExecutor() if request.param == "inline" else SystemExecutor(threads=2)
    yield executor
    executor.close()


class Inbox:
    """Waits for one outcome."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self.outcomes: list[Outcome[Any]] = []

    def __call__(self, outcome: Outcome[Any]) -> None:
        self.outcomes.append(outcome)
        self._arrived.set()

    def wait(self) -> Outcome[Any]:
        assert self._arrived.wait(WAIT_S)
        assert len(self.outcomes) == 1
        return self.outcomes[0]


def refuse(reason: str) -> None:
    raise ValueError(reason)


def blocking(executor: Executor, work: Callable[[], Any]) -> Outcome[Any]:
    inbox = Inbox()
    executor.run_blocking(work, inbox)
    return inbox.wait()


def computed(executor: Executor, function: Callable[..., Any], *arguments: Any) -> Outcome[Any]:
    inbox = Inbox()
    executor.run_cpu(function, arguments, inbox)
    return inbox.wait()


def test_blocking_work_hands_over_its_value_once(executor: Executor) -> None:
    outcome = blocking(executor, lambda: 42)
    assert outcome.value() == 42
    assert outcome.error is None


def test_what_blocking_work_raises_is_raised_by_asking_for_its_value(executor: Executor) -> None:
    outcome = blocking(executor, lambda: refuse("no"))
    with pytest.raises(ValueError, match="no"):
        outcome.value()


def test_computation_hands_over_its_value(executor: Executor) -> None:
    assert computed(executor, divmod, 17, 5).value() == (3, 2)


def test_what_a_computation_raises_comes_back(executor: Executor) -> None:
    with pytest.raises(ZeroDivisionError):
        computed(executor, divmod, 1, 0).value()


def test_closing_waits_for_what_was_begun() -> None:
    executor = SystemExecutor(threads=1)
    begun, go_on, inbox = threading.Event(), threading.Event(), Inbox()

    def work() -> str:
        begun.set()
        assert go_on.wait(WAIT_S)
        return "done"

    executor.run_blocking(work, inbox)
    assert begun.wait(WAIT_S)
    closing = threading.Thread(target=executor.close)
    closing.start()
    assert not inbox.outcomes
    go_on.set()
    closing.join(WAIT_S)
    assert inbox.wait().value() == "done"


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    child = ChildProcess()
    yield child
    child.close()


def test_computations_share_one_process_that_is_not_ours(child: ChildProcess) -> None:
    first = child.call(os.getpid, ())
    assert first != os.getpid()
    assert child.call(os.getpid, ()) == first


def test_what_a_computation_prints_does_not_spoil_its_answer(child: ChildProcess) -> None:
    child.call(print, ("to the error stream",))
    assert child.call(len, (b"x" * 1_000_000,)) == 1_000_000


def test_a_killed_process_fails_the_call_and_is_replaced_for_the_next(child: ChildProcess) -> None:
    first = child.call(os.getpid, ())
    with pytest.raises(RuntimeError, match="worker process ended"):
        child.call(signal.raise_signal, (signal.SIGKILL,))
    assert child.call(os.getpid, ()) != first


def test_a_worker_whose_caller_was_killed_leaves_without_a_word() -> None:
    call = pickle.dumps((len, (b"x" * 100_000,)))
    for sent in (call, call[:-10]):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            worker = subprocess.run(
                [sys.executable, "-m", "distributedlog.ports.worker"],
                input=sent,
                stdout=writing,
                stderr=subprocess.PIPE,
                timeout=WAIT_S,
                check=False,
            )
        finally:
            os.close(writing)
        assert (worker.returncode, worker.stderr) == (0, b"")


def test_a_worker_finds_the_modules_that_we_find_and_no_others(
    child: ChildProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, work = tmp_path / "library", tmp_path / "work"
    for directory in (library, work):
        directory.mkdir()
    (library / "only_on_our_path.py").write_text("def answer():\n    return 42\n")
    (work / "signal.py").write_text("raise SystemExit('not the one that was meant')\n")
    monkeypatch.syspath_prepend(library)
    monkeypatch.chdir(work)
    assert child.call(importlib.import_module("only_on_our_path").answer, ()) == 42


def test_a_closed_process_has_ended(child: ChildProcess) -> None:
    pid = child.call(os.getpid, ())
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
