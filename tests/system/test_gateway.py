"""The gateway of real brokers: beside Kafka's clients, from broker to broker, through crashes and stops."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import grpc
import pytest

from distributedlog.cli.main import main
from distributedlog.gateway._generated import broker_service_pb2 as pb
from tests.system.dev_cluster import DevCluster

ROOT = Path(__file__).parents[2]
QUICK = ("--set", "controller.quorum.election.timeout.ms=400", "--set", "drain.timeout.ms=500")
TIMEOUT_S = 60
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Caller:
    """A client that knows nothing but the proto."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)

    def _stub(self, kind: Any, name: str, request: Any, response: Any) -> Any:
        return kind(
            f"/dlog.v1.BrokerService/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    def produce(
        self, *records: pb.ProduceRecord, client_id: str = "a caller", **fields: Any
    ) -> list[pb.ProduceResult]:
        stub = self._stub(self.channel.unary_unary, "Produce", pb.ProduceRequest, pb.ProduceResponse)
        named = (("client-id", client_id),)
        request = pb.ProduceRequest(records=records, **fields)
        return list(stub(request, timeout=TIMEOUT_S, wait_for_ready=True, metadata=named).results)

    def stream(self, topic: str, partition: int, **fields: Any) -> Any:
        stub = self._stub(self.channel.unary_stream, "Fetch", pb.FetchRequest, pb.FetchResponse)
        position = pb.FetchPosition(topic=topic, partition=partition)
        return stub(pb.FetchRequest(positions=[position], **fields), timeout=TIMEOUT_S, wait_for_ready=True)

    def values(self, topic: str, partition: int) -> list[bytes]:
        found = self.stream(topic, partition, until_end=True)
        return [record.value for response in found for record in response.records]

    def metadata(self) -> pb.GetMetadataResponse:
        stub = self._stub(
            self.channel.unary_unary, "GetMetadata", pb.GetMetadataRequest, pb.GetMetadataResponse
        )
        answer = stub(pb.GetMetadataRequest(), timeout=TIMEOUT_S)
        assert isinstance(answer, pb.GetMetadataResponse)
        return answer

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def failure_in(error: grpc.RpcError) -> pb.Failure:
    trailing: Any = error.trailing_metadata()
    return pb.Failure.FromString(dict(trailing)["dlog-failure-bin"])


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    root = tmp_path_factory.mktemp("gateway")
    arguments = ("--port", "0", "--data-dir", root / "d", *QUICK)
    with DevCluster(root / "ready.json", *arguments) as cluster:
        yield cluster


def test_kafkas_clients_and_the_gateway_share_one_log(one_broker: DevCluster) -> None:
    bootstrap = one_broker.ready()["bootstrap"]
    with Caller(one_broker.gateway()) as caller:
        caller.produce(
            pb.ProduceRecord(
                topic="shared", key=b"k", value=b"by gateway", headers=[pb.RecordHeader(key="h", value=b"1")]
            )
        )
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
        for number in range(100):
            producer.produce("shared", b"by kafka %d" % number, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        expected = [b"by gateway", *(b"by kafka %d" % number for number in range(100))]
        assert caller.values("shared", 0) == expected
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("shared", 0, 0)])
    seen: list[Any] = []
    while len(seen) < 101:
        (message,) = consumer.consume(1, timeout=TIMEOUT_S)
        assert message.error() is None
        seen.append(message)
    consumer.close()
    assert [message.value() for message in seen] == expected
    assert (seen[0].key(), seen[0].headers()) == (b"k", [("h", b"1")])


def test_the_brokers_quotas_hold_for_callers_and_slow_nobody_else_down(one_broker: DevCluster) -> None:
    bootstrap = ("-b", one_broker.ready()["bootstrap"])
    whose = ("--client-id", "greedy")
    assert main(["cluster", "quotas", "set", *whose, "producer_byte_rate=1000", *bootstrap]) == 0
    large = pb.ProduceRecord(topic="charged", value=bytes(30_000))
    with Caller(one_broker.gateway()) as caller:
        caller.produce(large, client_id="greedy")
        with pytest.raises(grpc.RpcError) as caught:
            caller.produce(large, client_id="greedy", timeout_ms=200)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert failure_in(caught.value).name == "REQUEST_TIMED_OUT"
        caller.produce(large)
        assert main(["cluster", "quotas", "unset", *whose, "producer_byte_rate", *bootstrap]) == 0


def test_the_documented_example_prints_what_the_page_says(one_broker: DevCluster) -> None:
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^It prints\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env={**os.environ, "DLOG_GATEWAY": one_broker.gateway()},
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == printed


def test_the_standard_health_service_says_that_it_serves(one_broker: DevCluster) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(one_broker.gateway()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "dlog.v1.BrokerService"):
            told = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
            assert told.status == health_pb2.HealthCheckResponse.SERVING


def test_a_gateway_counts_calls_failures_times_bytes_and_streams(one_broker: DevCluster) -> None:
    reading, writing = os.pipe()
    command = (sys.executable, "-m", "distributedlog.cli.main", "gateway", f"--ready-fd={writing}")
    places = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "-b", one_broker.ready()["bootstrap"])
    gateway = subprocess.Popen([*command, *places], pass_fds=(writing,), stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as pipe:
            report = json.loads(pipe.readline())
        with Caller(report["gateway"]) as caller:
            for _ in range(3):
                caller.produce(pb.ProduceRecord(topic="counted", value=b"v" * 1_000))
            assert len(caller.values("counted", 0)) == 3
            with pytest.raises(grpc.RpcError):
                caller.produce(pb.ProduceRecord(topic="not/a/name", value=b"v"))
            stream = caller.stream("counted", 0)
            next(stream)
            sent = 'dlog_gateway_sent_bytes_total{method="Fetch"}'
            numbers = scrape(report["metrics"])
            while numbers[sent] <= 6_000:  # what has been sent is counted a moment after it can be read
                numbers = scrape(report["metrics"])
            assert numbers['dlog_gateway_calls_total{method="Produce",status="OK"}'] == 3
            assert sum(count for name, count in numbers.items() if "dlog_gateway_calls_total" in name) == 5
            assert numbers['dlog_gateway_call_seconds_count{method="Produce"}'] == 4
            assert 3_000 < numbers['dlog_gateway_received_bytes_total{method="Produce"}'] < 6_000
            assert (numbers["dlog_gateway_streams"], numbers["dlog_gateway_ready"]) == (1, 1)
            stream.cancel()
        gateway.terminate()
        assert gateway.wait(TIMEOUT_S) == 0
    finally:
        gateway.kill()
        gateway.wait()


def scrape(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as response:
        lines = response.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


def test_one_gateway_reaches_the_leader_of_every_partition(tmp_path: Path) -> None:
    settings = ("--set", "num.partitions=6", "--set", "default.replication.factor=1")
    arguments = ("--brokers", "3", "--port", "0", "--data-dir", tmp_path / "d", *QUICK, *settings)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster, Caller(cluster.gateway()) as caller:
        records = [
            pb.ProduceRecord(topic="spread", partition=partition, value=b"%d" % partition)
            for partition in range(6)
        ]
        results = caller.produce(*records)
        assert [(each.partition, each.offset) for each in results] == [(each, 0) for each in range(6)]
        for partition in range(6):
            assert caller.values("spread", partition) == [b"%d" % partition]
        metadata = caller.metadata()
        assert [broker.broker_id for broker in metadata.brokers] == [1, 2, 3]
        (topic,) = metadata.topics
        assert {each.leader for each in topic.partitions} == {1, 2, 3}
        assert cluster.stop() == 0


def test_a_stream_goes_on_after_its_broker_was_killed(tmp_path: Path) -> None:
    with (
        DevCluster(tmp_path / "ready.json", "--port", "0", "--data-dir", tmp_path / "d", *QUICK) as cluster,
        Caller(cluster.gateway()) as caller,
    ):
        values = [b"%d" % number for number in range(20)]
        for value in values:
            caller.produce(pb.ProduceRecord(topic="t", value=value))
        stream = caller.stream("t", 0, records_max=21)
        seen = [record.value for record in next(stream).records]
        os.kill(cluster.pids()[0], signal.SIGKILL)
        caller.produce(pb.ProduceRecord(topic="t", value=b"after"))
        seen += [record.value for response in stream for record in response.records]
        assert seen == [*values, b"after"]
        assert cluster.stop() == 0


def test_a_gateway_that_was_killed_is_started_again(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "ready.json", "--port", "0", "--data-dir", tmp_path / "d", *QUICK) as cluster:
        with Caller(cluster.gateway()) as caller:
            caller.produce(pb.ProduceRecord(topic="t", value=b"v"))
        (pid,) = re.findall(r"the gateway starts, pid (\d+)", "\n".join(cluster.lines))
        os.kill(int(pid), signal.SIGKILL)
        cluster.wait_for("the gateway was killed by SIGKILL")
        with Caller(str(cluster.ready()["gateway"])) as caller:
            caller.produce(pb.ProduceRecord(topic="t", value=b"w"))
            assert caller.values("t", 0) == [b"v", b"w"]
        assert cluster.stop() == 0


def test_a_cluster_that_stops_ends_the_streams(tmp_path: Path) -> None:
    with (
        DevCluster(tmp_path / "ready.json", "--port", "0", "--data-dir", tmp_path / "d", *QUICK) as cluster,
        Caller(cluster.gateway()) as caller,
    ):
        caller.produce(pb.ProduceRecord(topic="t", value=b"v"))
        stream = caller.stream("t", 0)
        assert [record.value for record in next(stream).records] == [b"v"]
        codes: list[Any] = []

        def read_on() -> None:
            with pytest.raises(grpc.RpcError) as ended:
                list(stream)
            codes.append(ended.value.code())

        reader = threading.Thread(target=read_on)
        reader.start()
        assert cluster.stop() == 0
        reader.join(TIMEOUT_S)
        assert codes == [grpc.StatusCode.UNAVAILABLE]
