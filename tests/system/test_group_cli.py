"""`dlog group` on a broker that runs, and groups of confluent-kafka's consumers."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from distributedlog.cli.main import main, root
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from tests.system.server_process import ServerProcess

TOPIC, PARTITIONS, RECORDS = "orders", 3, 10
COMMANDS = ["list", "describe", "lag", "exporter", "seek", "delete"]
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
}
TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker with a topic of three partitions, ten records in each, a second apart."""
    with ServerProcess(Path(tmp_path_factory.mktemp("groups")) / "node", SETTINGS) as node:
        address: str = node.facts["client"]
        producer = Producer({"bootstrap.servers": address})
        for partition in range(PARTITIONS):
            for at in range(RECORDS):
                producer.produce(TOPIC, b"v", partition=partition, timestamp=TIME_MS + at * 1000)
        assert producer.flush(30) == 0
        yield node
        assert node.stop() == 0


@pytest.fixture(scope="module")
def bootstrap(node: ServerProcess) -> str:
    address: str = node.facts["client"]
    return address


@pytest.fixture
def dlog(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Dlog":
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, bootstrap)
    return Dlog(capsys)


class Dlog:
    """Runs `dlog group …`; what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        found = main(["group", *arguments])
        out, self.err = self._capsys.readouterr()
        assert found == code, f"{arguments}: {found}\n{out}\n{self.err}"
        return out

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "-o", "json").splitlines()]


def stand(bootstrap: str, group: str, *offsets: int) -> None:
    """The group, without members, stands there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(TOPIC, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def moves(rows: list[dict[str, Any]]) -> dict[int, tuple[int | None, int]]:
    return {row["partition"]: (row["before"], row["after"]) for row in rows}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["group", command, "-h"])
    assert shown.exit_code == 0
    assert f"  dlog group {command} " in shown.output or f"  dlog group {command}\n" in shown.output
    assert BOOTSTRAP_VARIABLE in shown.output
    assert command in CliRunner().invoke(root, ["group", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["seek", "g", "--begin"], "either --topic TOPIC[:P,…] or --all-topics"),
        (["seek", "g", "--topic", "t", "--all-topics", "--begin"], "either --topic"),
        (["seek", "g", "--topic", "t"], "say where to, once"),
        (["seek", "g", "--topic", "t", "--begin", "--end"], "say where to, once"),
        (["seek", "g", "--topic", "t:x", "--begin"], "is not TOPIC:P,P,…"),
        (["seek", "g", "--topic", "t", "--to-offset", "-1"], "--to-offset"),
        (["seek", "g", "--topic", "t", "--to-time", "noon"], "is not a time"),
        (["seek", "", "--topic", "t", "--begin"], "a group's name is not empty"),
        (["describe", "g" * 10_001], "at most 10000 bytes"),
        (["delete", "g"], "add --yes if that is meant"),
        (["list", "--state", "asleep"], "--state"),
        (["lag", "g", "--isolation", "none"], "--isolation"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(dlog: Dlog, arguments: list[str], says: str) -> None:
    dlog(*arguments, code=2)
    assert says in dlog.err
    assert len(dlog.err.splitlines()) == 1


def test_a_group_that_is_not_there_is_said_so(dlog: Dlog) -> None:
    for command in (["describe"], ["lag"], ["delete", "--yes"]):
        dlog(*command, "nobody", code=1)
        assert "there is no group 'nobody'; 'dlog group list'" in dlog.err
    assert dlog("delete", "nobody", "--yes", "--if-exists") == "nobody is not there\n"
    dlog("seek", "nobody", "--all-topics", "--begin", code=1)
    dlog("seek", "nobody", "--topic", "absent", "--begin", code=1)
    assert "there is no topic 'absent'" in dlog.err
    dlog("seek", "nobody", "--topic", f"{TOPIC}:7", "--begin", code=1)
    assert "has no partition 7: it has 3" in dlog.err
    dlog("seek", "nobody", "--topic", TOPIC, "--shift", "1", code=2)
    assert "no committed offset in orders-0" in dlog.err


def test_groups_are_listed_by_state_and_their_lag_is_told(dlog: Dlog, bootstrap: str) -> None:
    stand(bootstrap, "billing", 0, 4, 10)
    (row,) = [row for row in dlog.rows("list") if row["group"] == "billing"]
    assert (row["state"], row["group_type"]) == ("Empty", "classic")
    assert "billing" in dlog("list", "--state", "empty", "--type", "classic")
    assert "billing" not in dlog("list", "--state", "Stable")
    *lags, total = dlog.rows("lag", "billing")
    assert [(row["position"], row["end"], row["lag"]) for row in lags] == [
        (0, 10, 10),
        (4, 10, 6),
        (10, 10, 0),
    ]
    assert (total["lag"], total["lag_is_exact"]) == (16, True)
    shown = dlog("lag", "billing", "--count-mib", "0")
    assert shown.splitlines()[-1] == "≤ 16 records to read in 3 partition(s)"
    dlog("lag", "billing", "--topic", "absent", code=1)
    assert dlog("delete", "billing", "--yes") == "billing deleted\n"
    assert "billing" not in dlog("list")


def test_a_group_is_moved_to_an_offset_a_time_an_end_and_by_some(dlog: Dlog, bootstrap: str) -> None:
    stand(bootstrap, "mover", 5, 5, 5)

    def seek(*arguments: str) -> dict[int, tuple[int | None, int]]:
        return moves(dlog.rows("seek", "mover", *arguments))

    everything = ("--topic", TOPIC)
    before = {0: (5, 0), 1: (5, 0), 2: (5, 0)}
    assert seek(*everything, "--begin", "--dry-run") == before, "and nothing has changed"
    assert seek(*everything, "--begin") == before
    assert seek("--topic", f"{TOPIC}:0,2", "--end") == {0: (0, 10), 2: (0, 10)}
    assert seek("--all-topics", "--shift", "-3") == {0: (10, 7), 1: (0, 0), 2: (10, 7)}
    assert "orders-1 goes from 0 to 10: 0 is taken for -3" in dlog.err
    assert seek("--topic", f"{TOPIC}:1", "--to-offset", "99") == {1: (0, 10)}
    assert seek(*everything, "--to-time", str(TIME_MS + 3_500)) == {0: (7, 4), 1: (10, 4), 2: (7, 4)}
    assert seek(*everything, "--to-time", str(TIME_MS + 60_000)) == {0: (4, 10), 1: (4, 10), 2: (4, 10)}
    shown = dlog("seek", "mover", "--topic", f"{TOPIC}:0", "--shift", "-4", "--dry-run")
    assert shown.splitlines()[1].split() == [TOPIC, "0", "10", "6", "-4"]
    assert shown.splitlines()[-1] == "nothing was changed: that was a dry run"


def test_a_group_that_is_not_there_yet_can_be_told_where_to_begin(dlog: Dlog, bootstrap: str) -> None:
    assert moves(dlog.rows("seek", "newcomer", "--topic", f"{TOPIC}:1", "--to-offset", "8")) == {1: (None, 8)}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "newcomer"})
    (place,) = consumer.committed([TopicPartition(TOPIC, 1)], timeout=10)
    assert place.offset == 8
    consumer.close()


def metrics(node: ServerProcess) -> dict[str, float]:
    """What a scrape shows of groups."""
    with urllib.request.urlopen(f"http://{node.facts['ops']}/metrics") as page:
        lines = page.read().decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("dlog_group"))
    return {name: float(value) for name, _, value in found}


def test_a_group_with_members_shows_them_and_is_left_alone(
    dlog: Dlog, bootstrap: str, node: ServerProcess
) -> None:
    given: list[TopicPartition] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "busy",
            "client.id": "reader",
            "group.instance.id": "i0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC], on_assign=lambda _, partitions: given.extend(partitions))
    while not given:
        consumer.poll(0.1)
    group, member = dlog.rows("describe", "busy")
    assert (group["state"], group["assignor"], group["members"]) == ("Stable", "range", 1)
    assert (member["client"], member["instance"], member["subscribed"]) == ("reader", "i0", [TOPIC])
    assert [each["partition"] for each in member["partitions"]] == [0, 1, 2]
    assert f"{TOPIC}:0,1,2" in dlog("describe", "busy")
    shown = metrics(node)
    assert shown['dlog_groups{state="Stable",type="classic"}'] == 1
    assert shown['dlog_group_members{group="busy"}'] == 1
    assert shown['dlog_group_rebalances_total{group="busy"}'] == 1
    *lags, total = dlog.rows("lag", "busy")
    assert {row["lag"] for row in lags} == {None}
    assert {row["client"] for row in lags} == {"reader"}
    assert total["partitions_without_position"] == 3
    consumer.commit(offsets=[TopicPartition(TOPIC, at, 1) for at in range(2)], asynchronous=False)
    assert metrics(node)['dlog_group_commits_total{group="busy"}'] == 2
    for arguments in (["seek", "busy", "--topic", TOPIC, "--begin"], ["delete", "busy", "--yes"]):
        dlog(*arguments, code=1)
        assert "stop them first" in dlog.err
    consumer.close()


def test_a_group_of_the_new_protocol_is_listed_described_and_left_alone(dlog: Dlog, bootstrap: str) -> None:
    given: list[TopicPartition] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "newer",
            "client.id": "reader",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC], on_assign=lambda _, partitions: given.extend(partitions))
    while not given:
        consumer.poll(0.1)
    assert "newer" in dlog("list", "--type", "consumer")
    assert "newer" not in dlog("list", "--type", "classic")
    group, member = dlog.rows("describe", "newer")
    assert (group["group_type"], group["assignor"], group["members"]) == ("consumer", "uniform", 1)
    assert group["epoch"] > 0
    assert (member["client"], member["subscribed"]) == ("reader", [TOPIC])
    dlog("seek", "newer", "--topic", TOPIC, "--end", code=1)
    assert "stop them first" in dlog.err
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
    consumer.close()
    assert moves(dlog.rows("seek", "newer", "--topic", f"{TOPIC}:0", "--shift", "2")) == {0: (4, 6)}
