"""The gateway of real brokers: beside Kafka's clients, from broker to broker, through crashes and stops."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import grpc
import pytest

from distributedlog.cli.main import main
from distributedlog.control._generated import broker_service_pb2 as pb
from tests.system.dev_cluster import DevCluster

ROOT = Path(__file__).parents[2]
QUICK = ("--set", "controller.quorum.election.timeout.ms=400", "--set", "drain.timeout.ms=500")
PATIENCE_S = 60
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

    def produce(self, *records: pb.ProduceRecord, client_id: str = "a caller") -> list[pb.ProduceResult]:
        stub = self._stub(self.channel.unary_unary, "Produce", pb.ProduceRequest, pb.ProduceResponse)
        named = (("client-id", client_id),)
        request = pb.ProduceRequest(records=records)
        return list(stub(request, timeout=PATIENCE_S, wait_for_ready=True, metadata=named).results)

    def stream(self, topic: str, partition: int, **fields: Any) -> Any:
        stub = self._stub(self.channel.unary_stream, "Fetch", pb.FetchRequest, pb.FetchResponse)
        position = pb.FetchPosition(topic=topic, partition=partition)
        return stub(pb.FetchRequest(positions=[position], **fields), timeout=PATIENCE_S, wait_for_ready=True)

    def values(self, topic: str, partition: int) -> list[bytes]:
        found = self.stream(topic, partition, until_end=True)
        return [record.value for response in found for record in response.records]

    def metadata(self) -> pb.GetMetadataResponse:
        stub = self._stub(
            self.channel.unary_unary, "GetMetadata", pb.GetMetadataRequest, pb.GetMetadataResponse
        )
        answer = stub(pb.GetMetadataRequest(), timeout=PATIENCE_S)
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


def gateway_of(cluster: DevCluster, at: int = 0) -> str:
    return str(cluster.ready()["brokers"][at]["gateway"])


def test_kafkas_clients_and_the_gateway_share_one_log(one_broker: DevCluster) -> None:
    bootstrap = one_broker.ready()["bootstrap"]
    with Caller(gateway_of(one_broker)) as caller:
        caller.produce(
            pb.ProduceRecord(
                topic="shared", key=b"k", value=b"by gateway", headers=[pb.RecordHeader(key="h", value=b"1")]
            )
        )
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
        for number in range(100):
            producer.produce("shared", b"by kafka %d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        expected = [b"by gateway", *(b"by kafka %d" % number for number in range(100))]
        assert caller.values("shared", 0) == expected
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("shared", 0, 0)])
    seen: list[Any] = []
    while len(seen) < 101:
        (message,) = consumer.consume(1, timeout=PATIENCE_S)
        assert message.error() is None
        seen.append(message)
    consumer.close()
    assert [message.value() for message in seen] == expected
    assert (seen[0].key(), seen[0].headers()) == (b"k", [("h", b"1")])


def test_quotas_hold_in_the_gateway(one_broker: DevCluster) -> None:
    bootstrap = ("-b", one_broker.ready()["bootstrap"])
    whose = ("--client-id", "greedy")
    assert main(["cluster", "quotas", "set", *whose, "producer_byte_rate=1000", *bootstrap]) == 0
    large = pb.ProduceRecord(topic="charged", value=bytes(30_000))
    with Caller(gateway_of(one_broker)) as caller:
        caller.produce(large, client_id="greedy")
        with pytest.raises(grpc.RpcError) as caught:
            caller.produce(large, client_id="greedy")
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert failure_in(caught.value).name == "THROTTLING_QUOTA_EXCEEDED"
        caller.produce(large)
        assert main(["cluster", "quotas", "unset", *whose, "producer_byte_rate", *bootstrap]) == 0
        assert caller.produce(large, client_id="greedy")[0].offset == 2


def test_the_documented_example_prints_what_the_page_says(one_broker: DevCluster) -> None:
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^It prints\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env={**os.environ, "DLOG_GATEWAY": gateway_of(one_broker)},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == printed


def test_the_standard_health_service_says_that_it_serves(one_broker: DevCluster) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(gateway_of(one_broker)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "dlog.v1.BrokerService"):
            told = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
            assert told.status == health_pb2.HealthCheckResponse.SERVING


def test_a_caller_finds_the_leader_of_every_partition_from_any_broker(tmp_path: Path) -> None:
    settings = ("--set", "num.partitions=6", "--set", "default.replication.factor=1")
    arguments = ("--brokers", "3", "--port", "0", "--data-dir", tmp_path / "d", *QUICK, *settings)
    with DevCluster(tmp_path / "ready.json", *arguments) as cluster:
        addresses = [str(broker["gateway"]) for broker in cluster.ready()["brokers"]]
        callers = {address: Caller(address) for address in addresses}
        told_elsewhere = 0
        for partition in range(6):
            record = pb.ProduceRecord(topic="spread", partition=partition, value=b"%d" % partition)
            address = addresses[0]
            try:
                callers[address].produce(record)
            except grpc.RpcError as error:
                failed = failure_in(error)
                assert failed.name == "NOT_LEADER_OR_FOLLOWER"
                assert not failed.outcome_unknown
                address, told_elsewhere = failed.leader.gateway, told_elsewhere + 1
                callers[address].produce(record)
            assert callers[address].values("spread", partition) == [b"%d" % partition]
        assert told_elsewhere == 4  # six partitions on three brokers
        told = callers[addresses[1]].metadata()
        assert [broker.gateway for broker in told.brokers] == addresses
        assert [len(topic.partitions) for topic in told.topics] == [6]
        for caller in callers.values():
            caller.channel.close()
        assert cluster.stop() == 0


def test_what_was_acknowledged_survives_a_killed_broker(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "ready.json", "--port", "0", "--data-dir", tmp_path / "d", *QUICK) as cluster:
        with Caller(gateway_of(cluster)) as caller:
            stream = caller.stream("t", 0)
            acknowledged = []
            for number in range(20):
                caller.produce(pb.ProduceRecord(topic="t", value=b"%d" % number))
                acknowledged.append(b"%d" % number)
            os.kill(cluster.pids()[0], signal.SIGKILL)
            with pytest.raises(grpc.RpcError):
                list(stream)
            cluster.wait_for("node 1 serves")
        with Caller(gateway_of(cluster)) as caller:
            assert caller.values("t", 0) == acknowledged
        assert cluster.stop() == 0


def test_a_broker_that_stops_ends_its_streams_and_hurries_nobody(tmp_path: Path) -> None:
    with (
        DevCluster(tmp_path / "ready.json", "--port", "0", "--data-dir", tmp_path / "d", *QUICK) as cluster,
        Caller(gateway_of(cluster)) as caller,
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
        reader.join(PATIENCE_S)
        assert codes == [grpc.StatusCode.UNAVAILABLE]
