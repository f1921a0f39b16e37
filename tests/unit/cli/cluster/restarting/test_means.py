"""How brokers are restarted: what a command is made of, and which ready files are one."""

import asyncio
import json
from pathlib import Path

import pytest

from distributedlog.cli.cluster.restarting.means import ByCommand, BySupervisor, RestartFailedError
from distributedlog.client.addresses import Address
from distributedlog.client.view import BrokerView
from distributedlog.model.errors import InvalidRequestError


def broker(node_id: int, host: str = "one.example") -> BrokerView:
    return BrokerView(node_id, Address(host, 9092))


def test_what_is_filled_in_is_one_word_for_the_shell(tmp_path: Path) -> None:
    means = ByCommand(f"echo {{id}} on {{host}} > {tmp_path}/said", 60)
    asyncio.run(means.restart(broker(3, "a; touch pwned")))
    assert (tmp_path / "said").read_text() == "3 on a; touch pwned\n"


def test_a_command_that_fails_or_does_not_end_is_told() -> None:
    with pytest.raises(RestartFailedError, match="exit code 4"):
        asyncio.run(ByCommand("exit 4", 60).restart(broker(1)))
    with pytest.raises(RestartFailedError, match="did not end within"):
        asyncio.run(ByCommand("exec sleep 60", 0.05).restart(broker(1)))


def test_one_command_for_several_brokers_has_to_name_them() -> None:
    ByCommand("restart", 1).check([broker(1)])
    ByCommand("restart {host}", 1).check([broker(1), broker(2)])
    with pytest.raises(InvalidRequestError, match="say which one"):
        ByCommand("restart", 1).check([broker(1), broker(2)])


def test_a_ready_file_is_that_of_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text(json.dumps({"brokers": [{"id": 1, "pid": 77, "client": "one.example:9092"}]}))
    BySupervisor(str(file)).check([broker(1)])
    for other in (broker(2), broker(1, "two.example")):
        with pytest.raises(InvalidRequestError, match="is of another cluster"):
            BySupervisor(str(file)).check([other])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"brokers": 3}', '{"brokers": [{"id": 1, "pid": 0, "client": "a:1"}]}', "[" * 9999],
)
def test_what_is_no_ready_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ready.json"
    file.write_text(text)
    with pytest.raises(InvalidRequestError, match="is no ready file"):
        BySupervisor(str(file)).check([broker(1)])
