"""A requester whose cluster is away for a while.  (How requests are replied to: `test_runner`.)"""

import signal
import threading
import time
from collections import deque
from pathlib import Path

import pytest

from distributedlog import Admin, NewTopic
from distributedlog.client.faces.settings import ClientSettings
from distributedlog.model.errors import DlogError, RecordTooLargeError
from distributedlog.patterns import Requester, Runner
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
