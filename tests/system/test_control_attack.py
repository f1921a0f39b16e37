"""The control port of a real cluster under attack: it goes on, starts again, and tells of it."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.topics import NewTopic
from distributedlog.model.cluster_secret import ClusterSecrets, parse_secrets
from distributedlog.model.errors import ClusterAuthorizationError, TopicExistsError
from distributedlog.raft import Message
from distributedlog.settings.secret_file import new_secret, read_secrets
from tests.system.control_attack import Target, hostile_messages, registration, send_messages, submit
from tests.system.dev_cluster import TIMEOUT_SECONDS, DevCluster
from tests.system.hostile_stage import GoodClient, Seen

QUICK = ("--set", "controller.quorum.election.timeout.ms=400", "--set", "drain.timeout.ms=500")
STRANGER = 99
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL)
"""The second is what gRPC says where a write failed before the refusal was read."""


def create_topic(admin: BlockingAdmin, name: str, partitions: int) -> None:
    """Creates a topic; an attempt that got no answer, on a busy machine, may have created it."""
    with suppress(TopicExistsError):
        admin.create_topic(NewTopic(name, partitions))


@contextmanager
def good_client_beside(dev: DevCluster) -> Iterator[None]:
    """Somebody who writes and reads meanwhile is served, as docs/hostile.md says."""
    with BlockingAdmin(dev.ready()["bootstrap"]) as admin:
        create_topic(admin, "good", 1)
        give_up = time.monotonic() + TIMEOUT_SECONDS
        while not (leaders := [each.partitions[0] for each in admin.list_topics() if each.name == "good"]):
            assert time.monotonic() < give_up, "no broker knows the topic"
        leader = str(admin.describe_cluster().brokers[leaders[0].leader_id].address)
    good = GoodClient(leader, "good")
    try:
        good.next_phase("attack")
        yield
        seen = Seen(good.next_phase("after"))
    finally:
        good.close()
    seen.check()


class Cluster:
    """Three brokers, and what can be seen of them from outside."""

    def __init__(self, dev: DevCluster, directory: Path) -> None:
        self._dev = dev
        self._directory = directory
        cluster_id = json.loads((directory / "dev.json").read_text())["cluster_id"]
        brokers = dev.ready()["brokers"]
        self.targets = [Target(broker["control"], cluster_id, broker["id"]) for broker in brokers]
        self.pids = dev.pids()

    @property
    def secrets(self) -> ClusterSecrets:
        return read_secrets(str(self._directory / "cluster.secret"))[1]

    def metrics(self, name: str) -> Counter[str]:
        """Over all nodes, by what stands in the braces."""
        found: Counter[str] = Counter()
        for broker in self._dev.ready()["brokers"]:
            with urllib.request.urlopen(f"http://{broker['ops']}/metrics", timeout=30) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(name):
                        labels, _, value = line.removeprefix(name).rpartition(" ")
                        found[labels] += int(float(value))
        return found

    def assert_refused(self, wanted: dict[str, int]) -> None:
        """What was counted is in the metrics a moment later.  A member that connects anew meanwhile may have
        a message refused, too: that one came over the connection before."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        counted: dict[str, int] = {}
        while counted != wanted and time.monotonic() < deadline:
            counted = {
                labels.removeprefix('{reason="').removesuffix('"}'): count
                for labels, count in self.metrics("dlog_control_refused_total").items()
            }
            counted.pop("another connection", None)
        assert counted == wanted

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self._directory.glob("node-*.log")))

    def assert_is_well(self, topic: str) -> None:
        """It takes a change, and nobody died."""
        with BlockingAdmin(self._dev.ready()["bootstrap"]) as admin:
            create_topic(admin, topic, 3)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while topic not in {
                each.name for each in admin.list_topics()
            }:  # of any broker, which may be behind
                assert time.monotonic() < deadline
            assert sorted(admin.describe_cluster().brokers) == [1, 2, 3]
        assert self._dev.pids() == self.pids
        assert max(self.metrics("dlog_raft_term").values()) < 3 * 100


@pytest.mark.parametrize("secret", ["none", "another"])
def test_without_the_secret_nothing_is_heard(tmp_path: Path, secret: str) -> None:
    directory = tmp_path / "data"
    arguments = ("--brokers", 3, "--port", 0, "--data-dir", directory, *QUICK)
    foreign = None if secret == "none" else parse_secrets(new_secret(), "made up")
    with DevCluster(tmp_path / "ready.json", *arguments) as dev:
        cluster = Cluster(dev, directory)
        with good_client_beside(dev):
            for target in cluster.targets:
                member = next(each.node_id for each in cluster.targets if each != target)
                for sender in (STRANGER, member):
                    for message in hostile_messages(sender, target.node_id).values():
                        _is_refused(target, sender, message, foreign)
                _registers_nothing(target, foreign)
        cluster.assert_is_well("during")
        if foreign is None:
            cluster.assert_refused({"not authenticated": 3 * (2 * 4 + 1)})
            assert "127.0.0.1: not authenticated: dlog.v1.Raft was called without a session" in cluster.log()
        assert dev.stop() == 0
    with DevCluster(tmp_path / "ready.json", "--data-dir", directory, *QUICK) as dev:
        Cluster(dev, directory).assert_is_well("after")
        assert dev.stop() == 0


def _is_refused(target: Target, sender: int, message: Message, secrets: ClusterSecrets | None) -> None:
    if secrets is None:
        assert send_messages(target, sender, [message]) in REFUSED
        return
    with pytest.raises(ClusterAuthorizationError, match="does not hold this cluster's secret"):
        send_messages(target, sender, [message], secrets)


def _registers_nothing(target: Target, secrets: ClusterSecrets | None) -> None:
    if secrets is None:
        assert submit(target, STRANGER, registration(target, STRANGER)) is grpc.StatusCode.UNAUTHENTICATED
        return
    with pytest.raises(ClusterAuthorizationError, match="does not hold this cluster's secret"):
        submit(target, STRANGER, registration(target, STRANGER), secrets)


def test_even_with_the_secret_no_message_ends_the_cluster(tmp_path: Path) -> None:
    """A broken node, or a stolen secret: the core believes no stranger, no impossible term, no garbage."""
    directory = tmp_path / "data"
    arguments = ("--brokers", 3, "--port", 0, "--data-dir", directory, *QUICK)
    with DevCluster(tmp_path / "ready.json", *arguments) as dev:
        cluster = Cluster(dev, directory)
        secrets = cluster.secrets
        with good_client_beside(dev):
            for target in cluster.targets:
                strange = list(hostile_messages(STRANGER, target.node_id).values())
                ended = send_messages(target, STRANGER, strange, secrets)
                assert ended in REFUSED, "no voter that the node knows of"
                member = next(each.node_id for each in cluster.targets if each != target)
                messages = list(hostile_messages(member, target.node_id).values())
                assert send_messages(target, member, messages, secrets) is grpc.StatusCode.OK
                stolen = submit(target, STRANGER, registration(target, member), secrets)
                assert isinstance(stolen, ClusterAuthorizationError), "a broker registers as itself alone"
        cluster.assert_is_well("during")
        cluster.assert_refused({"not its own": 3 * 2, "out of range": 3 * 2, "unreadable": 3 * 2})
        assert "unreadable: a message of consensus was not taken" in cluster.log()
        assert dev.stop() == 0
    with DevCluster(tmp_path / "ready.json", "--data-dir", directory, *QUICK) as dev:
        Cluster(dev, directory).assert_is_well("after")
        assert dev.stop() == 0
