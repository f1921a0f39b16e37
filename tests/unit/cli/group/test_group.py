"""`dlog group` before it asks anybody: help, refusals.  With brokers: `tests/system/test_group_cli`."""

import pytest
from click.testing import CliRunner

from distributedlog.cli.group.seek import Wanted, WantedType
from distributedlog.cli.main import root
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from distributedlog.groups.config import GROUP_ID_BYTES_MAX
from tests.ports import free_port
from tests.unit.cli.conftest import Dlog

COMMANDS = ["list", "describe", "lag", "exporter", "seek", "delete"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["group", command, "-h"])
    assert shown.exit_code == 0
    assert f"Usage: dlog group {command}" in shown.output
    assert f"  dlog group {command}" in shown.output
    assert BOOTSTRAP_VARIABLE in shown.output
    assert command in CliRunner().invoke(root, ["group", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["describe"], "Missing argument"),
        (["describe", ""], "is not empty"),
        (["lag", "g" * (GROUP_ID_BYTES_MAX + 1)], f"at most {GROUP_ID_BYTES_MAX} bytes"),
        (["lag", "g", "--topic", "a/b"], "characters other than"),
        (["seek", "g", "--topic", "t"], "say where to, once"),
        (["seek", "g", "--topic", "t", "--begin", "--end"], "say where to, once"),
        (["seek", "g", "--begin"], "either --topic"),
        (["seek", "g", "--topic", "t", "--all-topics", "--begin"], "either --topic"),
        (["seek", "g", "--topic", "t:", "--begin"], "'t:' is not TOPIC:P,P"),
        (["seek", "g", "--topic", "t:1,x", "--begin"], "'t:1,x' is not TOPIC:P,P"),
        (["seek", "g", "--topic", "t", "--to-offset", "-1"], "--to-offset"),
        (["seek", "g", "--topic", "t", "--to-time", "noon"], "noon"),
        (["exporter", "--listen", "nowhere"], "HOST:PORT"),
        (["exporter", "--listen", "0.0.0.0:9308"], "--insecure"),
        (["exporter", "--interval", "0"], "--interval"),
        (["list", "--bootstrap", "a:b"], "HOST:PORT"),
    ],
)
def test_what_is_wrong_is_told_before_a_cluster_is_asked(dlog: Dlog, arguments: list[str], says: str) -> None:
    outcome = dlog("group", *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.out == ""


def test_a_cluster_that_is_not_there_is_named(dlog: Dlog) -> None:
    address = f"127.0.0.1:{free_port()}"
    outcome = dlog("group", "list", "--bootstrap", address)
    assert outcome.code not in (0, 2)
    assert address in outcome.err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("orders", Wanted("orders", ())),
        ("orders:0", Wanted("orders", (0,))),
        ("orders:3,0,3", Wanted("orders", (3, 0))),
    ],
)
def test_partitions_are_named_behind_their_topic_and_count_once(text: str, wanted: Wanted) -> None:
    assert WantedType().convert(text, None, None) == wanted
