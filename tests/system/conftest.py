"""Prints after the tests the figures that they measured, which a passing test would keep to itself."""

import pytest

PROPERTY = "figures"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [
        (report.nodeid.rpartition("::")[2], value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if told:
        terminalreporter.section("figures")
        for test, value in told:
            terminalreporter.write_line(f"{test}: {value}")
