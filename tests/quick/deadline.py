"""A plugin of pytest: tests that would begin after the moment in DLOG_QUICK_ENDS are not begun.

The moment is one of the wall clock, which all workers share.  How many were left out is said at the end.
"""

import os
import time
from typing import Final

import pytest

ENDS: Final = float(os.environ.get("DLOG_QUICK_ENDS", "inf"))
LEFT_OUT: Final = "left_out"


class Deadline:
    def __init__(self, ends: float) -> None:
        self._ends = ends
        self.left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.time() < self._ends:
            return None
        self.left_out += 1
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker has ended: what it left out was left out."""
        self.left_out += getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[LEFT_OUT] = self.left_out

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(
                f"{self.left_out} tests were not begun: the time is over; `make test` runs them", yellow=True
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Deadline(ENDS), "quick-deadline")
