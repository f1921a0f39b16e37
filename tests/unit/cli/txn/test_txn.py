"""`dlog txn` before it asks anybody: help, refusals.  With brokers: `tests/system/test_transactions`."""

import pytest
from click.testing import CliRunner

from distributedlog.cli.main import root
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from tests.unit.cli.conftest import Dlog

COMMANDS = ["list", "describe", "find-hanging", "abort"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["txn", command, "-h"])
    assert shown.exit_code == 0
    assert f"Usage: dlog txn {command}" in shown.output
    assert f"  dlog txn {command}" in shown.output
    assert BOOTSTRAP_VARIABLE in shown.output
    assert command in CliRunner().invoke(root, ["txn", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list", "--state", "Nonsense"], "Nonsense"),
        (["describe"], "Missing argument"),
        (["find-hanging"], "--topic"),
        (["find-hanging", "--topic", "t", "--min-seconds", "-1"], "--min-seconds"),
        (["abort", "--topic", "t", "--partition", "0"], "--start-offset"),
        (["abort", "--topic", "t", "--partition", "0", "--start-offset", "0"], "--yes"),
    ],
)
def test_what_is_wrong_is_told_before_a_cluster_is_asked(dlog: Dlog, arguments: list[str], says: str) -> None:
    outcome = dlog("txn", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.out == ""
