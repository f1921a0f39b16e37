"""A broker is emptied, stopped and forgotten, while what it held is written to."""

import signal
from collections.abc import Iterator

import pytest

from distributedlog.cli.main import main
from distributedlog.client.admin.blocking import BlockingAdmin
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import Replicated, numbered, wait_until


@pytest.fixture
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("draining")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")


def test_a_broker_is_drained_and_then_forgotten_only_when_it_is_gone(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = [replicated.create(1, 2), replicated.create(2), replicated.create(3, 1)]
    for topic in topics:
        assert replicated.produce(topic, numbered(0, 100)) == [None] * 100
    at = ("--bootstrap", replicated.bootstrap)
    assert main(["cluster", "unregister", "2", "--yes", *at]) != 0
    assert "broker 2 lives: stop it first" in capsys.readouterr().err

    assert main(["cluster", "drain", "2", "--yes", *at]) == 0
    assert "2 moves begun, 0 refused" in capsys.readouterr().out
    assert main(["cluster", "drain", "2", "--yes", *at]) == 0
    assert "broker 2 holds no replicas" in capsys.readouterr().err

    replicated.signal(2, signal.SIGSTOP)
    try:
        with BlockingAdmin(replicated.bootstrap) as admin:
            wait_until(lambda: 2 in admin.list_fenced_brokers(), "the stopped broker is fenced")
            assert main(["cluster", "unregister", "2", "--yes", *at]) == 0
            assert "broker 2 is unregistered" in capsys.readouterr().out
            wait_until(lambda: admin.list_fenced_brokers() == (), "whoever is asked has heard of it")
    finally:
        replicated.signal(2, signal.SIGCONT)
    for topic in topics:
        assert replicated.produce(topic, numbered(100, 20)) == [None] * 20
        assert replicated.read(topic, 120) == numbered(0, 120)
