"""Brokers that lead are killed and stopped under load; nothing is lost, doubled or out of order (`kills`).

`DLOG_SOAK=1` makes it a hundred kills of a leader.  The gaps are printed, and not judged: how long something
takes says much about the machine.  By hand, and as often as wanted:

    python -m tests.system.failover leader --count 100
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.dev_cluster import DevCluster
from tests.system.failover.kills import ASSIGNMENT, Kills
from tests.system.failover.questions import Questions
from tests.system.replication.stage import Replicated

SOAK = os.environ.get("DLOG_SOAK") == "1"
COUNTS = (
    {"leader": 100, "controller": 30, "stop": 30, "twice": 30}
    if SOAK
    else {"leader": 3, "controller": 2, "stop": 1, "twice": 1}
)
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory: Path = tmp_path_factory.mktemp("failover")
    arguments = ("--brokers", 3, "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory)


@pytest.mark.timeout(3_600 if SOAK else 600)
@pytest.mark.parametrize("kind", COUNTS)
def test_a_leader_that_fails_is_followed_by_another(
    replicated: Replicated, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Meanwhile every broker is asked: none calls a topic unknown that is there (`questions`)."""
    kills = Kills(replicated, kind)
    addresses = {int(each): str(broker["client"]) for each, broker in replicated.brokers.items()}
    with Questions(addresses, kills.create_topic(), len(ASSIGNMENT)) as questions:
        found = kills.run(COUNTS[kind])
    assert found.acknowledged > 0
    questions.check()
    with capsys.disabled():
        print(f"\n{kind}: {found}\n{questions}")
