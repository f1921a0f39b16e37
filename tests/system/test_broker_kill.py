"""The broker is killed and started again, and again, while producers and consumers are at work."""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.reliability.checker import ALWAYS, IDEMPOTENT, WHOLE, check, describe, figures
from tests.reliability.history import Outcome
from tests.reliability.load import Load, final_read
from tests.system.server_process import ServerProcess, dlog

KILLS = 100 if os.environ.get("DLOG_SOAK") == "1" else 10
TOPIC, PARTITIONS = "orders", 3
PRODUCERS, CONSUMERS = ("p1", "p2", "p3"), ("c1", "c2")
CLIENTS = PRODUCERS + CONSUMERS
ACKS_BETWEEN_KILLS_MAX = 600
SETTINGS = {
    "num.partitions": PARTITIONS,
    "log.segment.bytes": 64 * 1024,  # so that segments are sealed, and their producers' states written, often
    "controller.quorum.election.timeout.ms": 400,
}
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def kill_now_and_then(node: ServerProcess, load: Load) -> list[float]:
    """Returns for how many seconds after each kill nothing was acknowledged."""
    chance = random.Random(5)
    gaps = []
    for number in range(KILLS):
        killed_ns = time.monotonic_ns()
        assert node.stop(signal.SIGKILL) == -signal.SIGKILL
        node.restart()
        # Consumers come back later than producers: every other time the next kill does not wait for them.
        who = CLIENTS if number % 2 else PRODUCERS
        first_ns = load.wait_for(chance.randrange(1, ACKS_BETWEEN_KILLS_MAX), who)
        gaps.append((first_ns - killed_ns) / 1e9)
    return gaps


@pytest.mark.timeout(600)
def test_a_killed_broker_loses_nothing_and_doubles_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    settings = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with ServerProcess(tmp_path / "node", settings) as node:
        bootstrap = node.facts["client"]
        with Load(bootstrap, TOPIC, PARTITIONS, tmp_path) as load:
            load.start("producing", "p1")
            load.start("producing", "p2")
            load.start("producing_asyncio", "p3")
            load.wait_for(acks=1)  # and so there is a topic to assign
            load.start("consuming", "c1")
            load.start("consuming", "c2")
            load.wait_for(1, CLIENTS)
            gaps = kill_now_and_then(node, load)
            history = load.stop()
        history = replace(history, final=final_read(bootstrap, TOPIC, PARTITIONS))
        assert node.stop() == 0
    findings = check(history, {**ALWAYS, **IDEMPOTENT, **WHOLE})
    told = (
        f"{KILLS} kills: {figures(history)}; from a kill to the next acknowledgement "
        f"p50 {statistics.median(gaps):.2f} s, worst {max(gaps):.2f} s"
    )
    record_property("figures", told)
    assert not findings, describe(findings)
    acknowledged = [send for send in history.sends if send.outcome is Outcome.OK]
    assert len(acknowledged) > KILLS * ACKS_BETWEEN_KILLS_MAX // 10
    assert {send.process for send in acknowledged} == set(PRODUCERS)
    assert {poll.process for poll in history.polls} == set(CONSUMERS)
    assert {position.process for position in history.positions} == set(CONSUMERS)
    verified = dlog("log", "verify", str(tmp_path / "node" / "data"))
    assert verified.returncode == 0, verified.stdout
