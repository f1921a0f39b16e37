"""The fixtures as a program's own tests use them, in a pytest of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from distributedlog.model.errors import ConfigError, DlogError
from distributedlog.testing import TestCluster

TESTS = """
from distributedlog import Consumer, Producer, TopicPartition

def send(bootstrap, topic):
    with Producer(bootstrap) as producer:
        return producer.send(topic, "v").result(60).offset

def test_first(dlog_broker, dlog_topic):
    assert send(dlog_broker, dlog_topic) == 0

def test_second_has_a_topic_of_its_own(dlog_broker, dlog_topic):
    assert send(dlog_broker, dlog_topic) == 0
    with Consumer(dlog_broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(dlog_topic, 0)])
        assert next(consumer).value == b"v"

def test_faults(dlog_cluster):
    cluster = dlog_cluster(1, cuttable=True)
    (broker,) = cluster.brokers
    assert send(cluster.bootstrap, "t") == 0
    with broker.paused():
        pass
    with Producer(cluster.bootstrap) as producer:
        assert producer.send("u", "w", partition=0).result(60).offset == 0
        cluster.cut()
        cut_off = producer.send("u", "x", partition=0)
        assert not cut_off.done()
        cluster.mend()
        assert cut_off.result(60).offset == 1
        cluster.disconnect(1)
        cluster.delay(20)
        assert producer.send("u", "y", partition=0).result(60).offset == 2
    cluster.kill(broker.node_id)
    with Producer(cluster.bootstrap, wait_for_cluster=True) as producer:
        assert producer.send("t", "w").result(60).offset == 1
"""


def test_the_fixtures_work_in_a_program_s_own_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "distributedlog.testing.plugin", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing() -> None:
    cluster = TestCluster(settings={"no.such.setting": 1})
    with pytest.raises(DlogError, match=r"no\.such\.setting"):
        cluster.start()
    with pytest.raises(ConfigError):
        TestCluster(0)
    with pytest.raises(ConfigError, match="cuttable=True"):
        TestCluster(1).cut()
    with pytest.raises(ConfigError, match="no broker 2"):
        TestCluster(1, cuttable=True).cut(2)
