"""The cluster that all tests of a worker share, and a report of which client was seen to do what (see
tests/compat/broker/matrix.py).

With DLOG_COMPAT_BROKERS=3 (`make compat BROKERS=3`) the same tests run against three brokers and topics of
three replicas, and brokers are killed meanwhile (`broker/disturbing`).
"""

import os
from collections.abc import Iterator

import pytest

from tests.compat.broker.matrix import Cell, Matrix
from tests.system.dev_cluster import DevCluster

BROKERS = int(os.environ.get("DLOG_COMPAT_BROKERS", "1"))
MATRIX = pytest.StashKey[Matrix]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = Matrix()
    config.pluginmanager.register(Gatherer(config.stash[MATRIX]), "compat-matrix")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Brokers as a user has them who changed nothing."""
    directory = tmp_path_factory.mktemp("broker")
    arguments = ("--brokers", BROKERS, "--port", "0", "--data-dir", directory / "data")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield cluster
        assert cluster.stop() == 0


class Gatherer:
    """A plugin in the process that gets every report; workers have one too, which nobody asks."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._holes: list[Cell] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._matrix.add(report.user_properties)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Where tests failed, their cells are missing for that reason, and the run fails anyway."""
        if self._matrix and is_whole_run(session.config) and session.exitstatus == pytest.ExitCode.OK:
            self._holes = self._matrix.holes()
            if self._holes:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._matrix:
            return
        terminalreporter.section("clients")
        for line in self._matrix.lines():
            terminalreporter.write_line(line)
        for client, feature, codec in self._holes:
            terminalreporter.write_line(f"a hole: {client}, {feature} {codec}", red=True)


def is_whole_run(config: pytest.Config) -> bool:
    """Not if some tests were chosen, or if it is one worker of several."""
    chosen = config.getoption("keyword") or config.getoption("markexpr") or config.getoption("lf", False)
    narrowed = any("::" in argument or argument.endswith(".py") for argument in config.args)
    return not (chosen or narrowed or hasattr(config, "workerinput"))
