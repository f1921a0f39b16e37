"""`dlog topic` as a whole: on librdkafka's broker for records, on a scripted one for the rest."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from distributedlog.cli.main import root
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from tests.ports import free_port
from tests.unit.cli.conftest import Dlog, Outcome
from tests.unit.client.ledger import Ledger
from tests.unit.client.stage import mock_cluster
from tests.unit.client.town import Town

COMMANDS = [
    "list", "create", "describe", "delete", "alter", "trim",
    "produce", "consume", "export", "import", "replay", "analyze",
]  # fmt: skip
DLOG = [sys.executable, "-m", "distributedlog.cli.main"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with mock_cluster(2) as bootstrap:
        yield bootstrap


@pytest.fixture
def topic(dlog: Dlog, cluster: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic for the test alone, in a cluster that need not be named."""
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, cluster)
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)


@contextmanager
def stdin(monkeypatch: pytest.MonkeyPatch, path: Path, text: bytes) -> Iterator[None]:
    path.write_bytes(text)
    with path.open() as source:
        monkeypatch.setattr(sys, "stdin", source)
        yield


def produced(dlog: Dlog, topic: str, path: Path, text: str, *options: str) -> Outcome:
    path.write_text(text)
    return dlog("topic", "produce", topic, "-l", path, *options)


# --- help and mistakes -------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(root, ["topic", command, "-h"])
    assert shown.exit_code == 0
    assert f"Usage: dlog topic {command}" in shown.output
    assert f"  dlog topic {command} " in shown.output or f"| dlog topic {command} " in shown.output
    assert BOOTSTRAP_VARIABLE in shown.output
    assert command in CliRunner().invoke(root, ["topic", "--help"]).output


def test_the_groups_own_help_imports_no_client() -> None:
    program = (
        "import sys; from distributedlog.cli.main import main; code = main(['topic', '--help']); "
        "heavy = {'asyncio', 'crc32c', 'distributedlog.client', 'distributedlog.protocol'}; "
        "sys.exit(code or bool(sys.modules.keys() & heavy))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["list", "--bootstrap", "a:b"], 2, "HOST:PORT"),
        (["create", "a/b"], 2, "characters other than"),
        (["create", "a", "-c", "retention.ms"], 2, "write KEY=VALUE"),
        (["create", "a", "-p", "0"], 2, "--partitions"),
        (["create"], 2, "Missing argument"),
        (["delete", "a"], 2, "add --yes if that is meant"),
        (["consume", "a", "--from", "noon"], 2, "is no place"),
        (["consume", "a", "-f", "%q"], 2, "%q means nothing"),
        (["consume", "a", "-f", "%v", "-o", "json"], 2, "-f and -o"),
        (["consume", "a", "-e", "--to", "5"], 2, "-e and --to"),
        (["consume", "a", "--isolation", "serial"], 2, "--isolation"),
        (["produce", "a", "-z", "rar"], 2, "--compression"),
        (["produce", "a", "-H", "=x"], 2, "NAME=VALUE"),
        (["produce", "a", "-k", ""], 2, "must not be empty"),
        (["produce", "a", "--json", "-k", ":"], 2, "leave -k and -Z away"),
        (["produce", "a", "-l", "no/such/file"], 1, "there is no file no/such/file"),
        (["produce", "a", "-l", "/"], 2, "/ is a directory"),
        (["alter", "a"], 2, "say --partitions, --replication-factor, --set or --unset"),
        (["alter", "a", "--throttle", "9"], 2, "say --replication-factor with it"),
        (["alter", "a", "--set", "x"], 2, "write KEY=VALUE"),
        (["alter", "a", "--set", "x=1", "--unset", "x"], 2, "x is both set and unset"),
        (["trim", "a"], 2, "--before"),
        (["trim", "a", "--before", "end"], 2, "add --yes if that is meant"),
        (["export", "a", "b.txt"], 2, "or say --format"),
        (["export", "a", "-", "-o", "json"], 2, "both want stdout"),
        (["import", "a", "-", "--state", "s"], 2, "stdin cannot be read a second time"),
        (["import", "a", "no/such.jsonl"], 1, "there is no file no/such.jsonl"),
        (["import", "a", "/", "--format", "jsonl"], 2, "/ is a directory"),
        (["import", "a", "/dev/null", "--format", "jsonl", "--state", "no/s"], 1, "there is no directory no"),
        (["replay", "a", "a"], 2, "would only double it"),
        (["replay", "a", "b", "--rate", "fast"], 2, "500/s or max"),
        (["analyze", "a", "--sample", "0"], 2, "--sample"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_wrong_input_is_one_line(dlog: Dlog, arguments: list[str], code: int, says: str) -> None:
    outcome = dlog("topic", *arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("dlog: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err


@pytest.mark.parametrize(
    "command",
    [
        "list", "describe t", "create t", "delete t --yes", "consume t", "alter t --unset x",
        "trim t --before end --yes", "export t -", "import t /dev/null --format jsonl", "replay t u",
        "analyze t",
    ],
)  # fmt: skip
def test_without_a_broker_it_says_where_it_looked_and_how_to_start_one(dlog: Dlog, command: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    outcome = dlog("topic", *command.split(), "--bootstrap", address)
    assert outcome.code == 3
    assert outcome.err.count("\n") == 1
    assert f"{address} cannot be reached: Connection refused" in outcome.err
    assert "'dlog dev'" in outcome.err


def test_a_topic_that_is_not_there_is_told_with_where_to_look(dlog: Dlog, topic: str) -> None:
    for command in (["describe", topic], ["consume", topic]):
        outcome = dlog("topic", *command)
        assert outcome.code == 1
        assert f"there is no topic '{topic}'; 'dlog topic list' shows" in outcome.err


# --- topics ------------------------------------------------------------------------------------


def test_topics_are_made_listed_described_and_deleted(dlog: Dlog) -> None:
    with Town().broker().running() as broker:
        there = ("--bootstrap", broker.bootstrap)
        made = dlog("topic", "create", "orders", "-p", "2", "-c", "retention.ms=1000", *there)
        assert (made.code, made.out) == (0, "orders created with 2 partition(s), 1 replica(s) each\n")
        listed = dlog("topic", "list", *there)
        assert listed.out.splitlines()[1].split() == ["orders", "2", "1", "healthy"]
        described = dlog("topic", "describe", "orders", *there)
        assert described.out.splitlines()[0] == "orders  2 partition(s), healthy"
        assert described.out.splitlines()[2].split() == ["0", "1", "0", "1", "1", "0", "7", "1000", "bytes"]
        assert described.out.splitlines()[-1] == "  retention.ms=1000"
        assert "cleanup.policy=delete  (default)" in dlog("topic", "describe", "orders", "--all", *there).out
        assert dlog("topic", "delete", "orders", "--yes", *there).out == "orders deleted\n"
        assert dlog("topic", "list", *there).out == ""


def test_topics_are_told_to_programs_as_json(dlog: Dlog) -> None:
    with Town().broker().running() as broker:
        there = ("--bootstrap", broker.bootstrap, "-o", "json")
        (made,) = dlog("topic", "create", "orders", *there).rows
        assert (made["type"], made["topic"], made["outcome"], made["partitions"]) == (
            "created",
            "orders",
            "created",
            4,
        )
        (listed,) = dlog("topic", "list", *there).rows
        assert (listed["topic"], listed["partitions"], listed["partitions_without_leader"]) == (
            "orders",
            4,
            0,
        )
        described = dlog("topic", "describe", "orders", *there)
        (topic,) = described.of_type("topic")
        assert topic["settings"]["cleanup.policy"] == {"value": "delete", "source": "default"}
        partitions = described.of_type("partition")
        assert [each["partition"] for each in partitions] == [0, 1, 2, 3]
        assert (partitions[3]["end_offset"], partitions[3]["size_bytes"]) == (7, 1003)
        (deleted,) = dlog("topic", "delete", "orders", "--yes", *there).rows
        assert deleted == {"type": "deleted", "topic": "orders", "outcome": "deleted"}


def test_what_is_there_already_or_not_any_more_is_an_error_unless_it_is_said_to_be_none(dlog: Dlog) -> None:
    with Town(topics={"old": 1}).broker().running() as broker:
        there = ("--bootstrap", broker.bootstrap)
        refused = dlog("topic", "create", "old", "new", *there)
        assert (refused.code, refused.out.split()[:2]) == (1, ["new", "created"])
        assert "topic 'old': it is there already (TOPIC_ALREADY_EXISTS)" in refused.err
        assert dlog("topic", "create", "old", "--if-not-exists", *there).out == "old exists already\n"
        refused = dlog("topic", "delete", "none", "old", "--yes", *there)
        assert (refused.code, refused.out) == (1, "old deleted\n")
        assert "there is no topic 'none'" in refused.err
        assert dlog("topic", "delete", "none", "--yes", "--if-exists", *there).out == "none is not there\n"


def delete_on_a_terminal(bootstrap: str, said: bytes) -> "subprocess.CompletedProcess[bytes]":
    ours, theirs = os.openpty()
    os.write(ours, said)
    done = subprocess.run(
        [*DLOG, "topic", "delete", "old", "--bootstrap", bootstrap],
        stdin=theirs,
        capture_output=True,
        check=False,
        timeout=30,
    )
    os.close(ours)
    os.close(theirs)
    return done


def test_deleting_asks_on_a_terminal_and_takes_no_for_an_answer() -> None:
    town = Town(topics={"old": 1})
    with town.broker().running() as broker:
        refused = delete_on_a_terminal(broker.bootstrap, b"n\n")
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"Delete old and everything in it?" in refused.stderr
        assert town.topics == {"old": 1}
        agreed = delete_on_a_terminal(broker.bootstrap, b"y\n")
        assert (agreed.returncode, agreed.stdout) == (0, b"old deleted\n")
        assert town.topics == {}


def test_a_broker_that_does_not_make_topics_says_so(dlog: Dlog, topic: str) -> None:
    outcome = dlog("topic", "create", topic)
    assert outcome.code == 1
    assert "does not serve CREATE_TOPICS" in outcome.err


# --- records -----------------------------------------------------------------------------------


def test_lines_go_in_and_values_come_out(dlog: Dlog, topic: str, tmp_path: Path) -> None:
    outcome = produced(dlog, topic, tmp_path / "lines", "one\ntwo\nthree", "-p", "1")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == f"dlog: 3 records delivered to {topic}\n"
    assert dlog("topic", "consume", topic, "-e").out == "one\ntwo\nthree\n"
    assert dlog("topic", "consume", topic, "-e", "--from", "-2").out == "two\nthree\n"
    assert dlog("topic", "consume", topic, "-c", "1").out == "one\n"
    assert dlog("topic", "consume", topic, "--from", "1", "--to", "2", "-p", "1").out == "two\n"
    assert dlog("topic", "consume", topic, "-e", "--from", "end").out == ""
    assert dlog("topic", "consume", topic, "-e", "-p", "0").out == ""


def test_stdin_is_read_where_no_file_is_named(
    dlog: Dlog, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stdin(monkeypatch, tmp_path / "in", b"from stdin\n"):
        assert dlog("topic", "produce", topic).code == 0
    assert dlog("topic", "consume", topic, "-e").out == "from stdin\n"


def test_keys_headers_compression_and_nulls_travel(dlog: Dlog, topic: str, tmp_path: Path) -> None:
    options = ("-k", ":", "-H", "from=test", "-H", "flag", "-z", "zstd", "-Z", "-p", "0")
    produced(dlog, topic, tmp_path / "lines", "alice:1\nbob:\n", *options)
    shown = dlog("topic", "consume", topic, "-e", "-f", "%o %k=%v %K %S %h %t/%p")
    assert (
        shown.out
        == f"0 alice=1 5 1 from=test,flag=NULL {topic}/0\n1 bob= 3 -1 from=test,flag=NULL {topic}/0\n"
    )
    assert dlog("topic", "consume", topic, "-e", "-Z", "-f", "%v").out == "1\nNULL\n"
    table = dlog("topic", "consume", topic, "-e", "-o", "table").out.splitlines()
    assert table[0].split() == ["partition", "offset", "time", "key", "value", "headers"]
    assert table[2].split()[3:5] == ["bob", "-"]


def test_a_topic_is_copied_through_json(dlog: Dlog, topic: str, tmp_path: Path) -> None:
    lines = [
        {"key": "a", "value": "1", "timestamp_ms": 1000, "partition": 2, "headers": {"h": "x"}},
        {"key": "/w==", "key_encoding": "base64", "value": None, "timestamp_ms": 2000, "partition": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    told = produced(dlog, topic, tmp_path / "lines", text, "--json", "-o", "json").rows
    assert told[0]["records"] == 2
    assert told[0]["partitions"][0] == {"partition": 1, "records": 1, "first_offset": 0, "last_offset": 0}
    first = dlog("topic", "consume", topic, "-e", "-o", "json")
    copied = produced(dlog, f"{topic}-copy", tmp_path / "copy", first.out, "--json")
    assert copied.code == 0
    second = dlog("topic", "consume", f"{topic}-copy", "-e", "-o", "json")
    strip = [{k: v for k, v in row.items() if k != "topic"} for row in first.rows]
    assert sorted(map(str, strip)) == sorted(
        str({k: v for k, v in row.items() if k != "topic"}) for row in second.rows
    )
    assert {row.get("key_encoding") for row in first.rows} == {None, "base64"}


def test_bytes_that_are_no_text_come_out_as_they_are(topic: str, dlog: Dlog, tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\x00\n")
    dlog("topic", "produce", topic, "-l", path)
    read = subprocess.run([*DLOG, "topic", "consume", topic, "-e"], capture_output=True, check=True)
    assert read.stdout == b"\xff\xfe\x00\n"


def test_a_line_that_is_no_record_stops_it_and_is_named(dlog: Dlog, topic: str, tmp_path: Path) -> None:
    outcome = produced(
        dlog, topic, tmp_path / "lines", '{"value": "good"}\nbad\n{"value": "late"}\n', "--json"
    )
    assert outcome.code == 2
    delivered, said = outcome.err.splitlines()
    assert delivered == f"dlog: 1 record delivered to {topic}"
    assert said.startswith("dlog: line 2: it is not JSON")
    assert dlog("topic", "consume", topic, "-e").out == "good\n"


def test_a_partition_or_an_offset_that_is_not_there_is_told_with_those_that_are(
    dlog: Dlog, topic: str, tmp_path: Path
) -> None:
    assert "partitions 0 to 3, not 9" in produced(dlog, topic, tmp_path / "l", "x", "-p", "9").err
    produced(dlog, topic, tmp_path / "l", "x", "-p", "0")
    outcome = dlog("topic", "consume", topic, "-p", "9")
    assert (outcome.code, "has partitions 0 to 3, not 9" in outcome.err) == (1, True)
    outcome = dlog("topic", "consume", topic, "-p", "0", "--from", "5")
    assert (outcome.code, f"{topic}-0 has no offset 5: it goes from 0 to 1" in outcome.err) == (1, True)


def test_a_record_that_the_broker_refuses_is_told_and_counted(dlog: Dlog, tmp_path: Path) -> None:
    ledger = Ledger({"t": 1})
    ledger.faults.extend(["too large"] * 5)
    with ledger.broker().running() as broker:
        outcome = produced(dlog, "t", tmp_path / "l", "a\nb\n", "--bootstrap", broker.bootstrap)
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "dlog: 0 records delivered to t, 2 not",
        "dlog: partition t-0: the broker's own words (MESSAGE_TOO_LARGE)",
    ]


def test_records_from_a_time_on_are_read(dlog: Dlog, tmp_path: Path) -> None:
    with Ledger({"t": 1}).broker().running() as broker:
        there = ("--bootstrap", broker.bootstrap)
        lines = "".join(json.dumps({"value": str(n), "timestamp_ms": n * 1000}) + "\n" for n in range(1, 6))
        produced(dlog, "t", tmp_path / "l", lines, "--json", *there)
        # All five stand in one batch, of which a broker sends what is asked for and the rest.
        assert dlog("topic", "consume", "t", "-e", "--from", "@3000", *there).out == "3\n4\n5\n"
        assert dlog("topic", "consume", "t", "--from", "@2000", "--to", "@4000", *there).out == "2\n3\n"
        assert dlog("topic", "consume", "t", "-e", "--from", "-1h", *there).out == ""


def test_control_c_ends_a_reader_that_waits(topic: str, dlog: Dlog, tmp_path: Path) -> None:
    produced(dlog, topic, tmp_path / "l", "here\n")

    def heed_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        [*DLOG, "topic", "consume", topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == b""
        assert process.stdout.read() == b""
