"""A requester whose cluster is away for a while, or whose process has forked.  (How requests are replied to:
`test_runner`.)"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from distributedlog import Admin, NewTopic, TopicPartition
from distributedlog.client.faces.settings import ClientSettings
from distributedlog.model.errors import ClientClosedError, DlogError, RecordTooLargeError
from distributedlog.patterns import Requester, Runner, TopicTable
from distributedlog.records.record import Record, encode_batch
from tests.ports import free_port
from tests.system.server_process import ServerProcess
from tests.unit.client.ledger import Ledger

WAIT_S = 60.0
READING_FAILS = "no replies are read from answers for now"


def test_a_cluster_that_is_away_for_a_while_does_not_end_a_requester(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quick: ClientSettings = {"default_api_timeout_ms": 300, "retry_backoff_ms": 10}
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with ServerProcess(tmp_path, settings) as server:
        bootstrap = server.facts["client"]
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic("questions", 1), NewTopic("answers", 1)])
        with Requester(bootstrap, topic="questions", reply_topic="answers", settings=quick) as requester:
            server.stop(signal.SIGKILL)
            deadline = time.monotonic() + WAIT_S
            while READING_FAILS not in caplog.text:
                assert time.monotonic() < deadline
                with pytest.raises(DlogError):
                    requester.ask("is anybody there?", timeout_ms=100)
            server.restart()
            runner = Runner(bootstrap, group_id="responders")
            runner.responder("questions")(lambda record: record.value)
            running = threading.Thread(target=runner.run)
            running.start()
            try:
                assert requester.ask("and now?", timeout_ms=60_000) == b"and now?"
            finally:
                runner.stop()
                running.join(WAIT_S)
    assert caplog.text.count(READING_FAILS) == 1


def test_a_request_that_cannot_be_delivered_is_not_waited_for() -> None:
    ledger = Ledger({"questions": 1, "answers": 1}, deque(["too large"]))
    with (
        ledger.broker().running() as broker,
        Requester(broker.bootstrap, topic="questions", reply_topic="answers") as requester,
        pytest.raises(RecordTooLargeError),
    ):
        requester.ask("how much is too much?", timeout_ms=5_000)


def test_what_is_open_belongs_to_the_parent_after_a_fork() -> None:
    """A child would look at a table that nobody reads on, and ask over connections of its parent's."""
    ledger = Ledger({"questions": 1, "answers": 1})
    ledger.append(TopicPartition("answers", 0), encode_batch([Record(b"v", b"k", timestamp_ms=1)]))
    with (
        ledger.broker().running() as broker,
        Requester(broker.bootstrap, topic="questions", reply_topic="answers") as requester,
        TopicTable[bytes, bytes](broker.bootstrap, topic="answers") as table,
    ):
        looks: list[Callable[[], object]] = [
            lambda: requester.ask("v", timeout_ms=1),
            lambda: table[b"k"],
            table.snapshot,
            lambda: len(table),
            table.lag,
        ]
        child = os.fork()
        if child == 0:  # nothing of pytest runs here: the process ends by itself
            status = 0
            try:
                for look in looks:
                    try:
                        look()
                        status += 1
                    except ClientClosedError as error:
                        status += "parent" not in str(error)
                table.close()
                requester.close()
            except BaseException:
                status = 9
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert table[b"k"] == b"v"
        ledger.append(TopicPartition("answers", 0), encode_batch([Record(b"w", b"k", timestamp_ms=2)]))
        table.wait_until((TopicPartition("answers", 0), 1))
        assert table[b"k"] == b"w"
