"""A disk that fails: its broker has itself fenced, others lead at once, and it ends with exit code 3."""

from pathlib import Path

from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import Replicated, numbered, wait_until

SESSION_MS = 300_000
"""Far longer than the test: a broker that only fell silent would lead all the time."""


def stands_in_the_way(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def test_a_failed_disk_fences_its_broker_before_it_exits(tmp_path: Path) -> None:
    """Where a checkpoint is to be written stands something that cannot be written to: as good as EIO."""
    settings = (
        *("--set", f"broker.session.timeout.ms={SESSION_MS}"),
        *("--set", "replica.high.watermark.checkpoint.interval.ms=200"),
    )
    arguments = ("--brokers", 3, "--data-dir", tmp_path / "data", "--port", 0, "--no-gateway", "--no-restart")
    with DevCluster(tmp_path / "ready.json", *arguments, *settings) as cluster:
        replicated = Replicated(cluster, tmp_path / "data")
        topic = replicated.create()
        assert replicated.produce(topic, numbered(0, 50)) == [None] * 50
        leader = replicated.leader(topic)
        blocked = Path(replicated.brokers[leader]["data_dir"]) / "replication-offset-checkpoint.tmp"
        wait_until(lambda: stands_in_the_way(blocked), "no checkpoint is just being written there")
        assert replicated.produce(topic, numbered(50, 1)) == [None]
        cluster.wait_for(f"node {leader} ended with exit code 3")
        wait_until(lambda: replicated.partition(topic)[0] not in (leader, -1), "another one leads")
        assert replicated.produce(topic, numbered(51, 50)) == [None] * 50
        assert leader not in replicated.isr(topic)
        assert "the broker is fenced, and others lead" in replicated.log_of(leader)
