"""Metadata and health of the cluster through the gateway, and how it stops."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from distributedlog.client.addresses import Address
from distributedlog.client.view import BrokerView, ClusterView, PartitionView, TopicView
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.metadata import TOPICS_MAX, describe_cluster
from distributedlog.gateway.service import BROKER_SERVICE
from distributedlog.model.errors import ConfigError, PolicyViolationError
from tests.unit.gateway.stage import HOST, GatewayStage, failure_in, run

NOBODY = f"{HOST}:1"
"""Where no broker listens."""


def test_the_metadata_names_brokers_topics_and_leaders() -> None:
    partitions = (
        PartitionView(0, 2, 3, replicas=(2, 1), isr=(2,)),
        PartitionView(1, -1, 4, replicas=(1,), isr=()),
    )
    view = ClusterView(
        cluster_id="c",
        controller_id=2,
        brokers={each: BrokerView(each, Address("kafka", 9000 + each), "r1") for each in (2, 1)},
        topics={"b": TopicView("b", partitions), "a": TopicView("a")},
    )

    async def story() -> None:
        found = await describe_cluster(view, [])
        assert (found.cluster_id, found.controller_id) == ("c", 2)
        brokers = [(each.broker_id, each.host, each.port, each.rack) for each in found.brokers]
        assert brokers == [(1, "kafka", 9001, "r1"), (2, "kafka", 9002, "r1")]
        assert [each.name for each in found.topics] == ["a", "b"]
        led, leaderless = found.topics[1].partitions
        assert (led.leader, led.leader_epoch, list(led.replicas), list(led.isr)) == (2, 3, [2, 1], [2])
        assert not leaderless.HasField("leader")
        with pytest.raises(PolicyViolationError, match="name fewer topics"):
            await describe_cluster(view, [], partitions_max=1)

    run(story)


def test_topics_are_described_as_named(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            found = await stage.get_metadata(stage.topic, "absent", stage.topic, "no/name")
            assert [each.name for each in found.topics] == [stage.topic, "absent", "no/name"]
            assert [each.failure.name for each in found.topics] == [
                "", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION",
            ]  # fmt: skip
            assert stage.topic in [each.name for each in (await stage.get_metadata()).topics]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.get_metadata(*(f"t{n}" for n in range(TOPICS_MAX + 1)))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(story)


async def standard_health(stage: GatewayStage, service: str) -> object:
    stub = health_pb2_grpc.HealthStub(stage.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


def test_health_speaks_of_the_cluster(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            assert (await stage.health()).status == pb.HealthCheckResponse.SERVING
            assert await standard_health(stage, "") == health_pb2.HealthCheckResponse.NOT_SERVING
            await stage.server.check_health()
            for service in ("", BROKER_SERVICE):
                assert await standard_health(stage, service) == health_pb2.HealthCheckResponse.SERVING

    run(story)


def test_without_a_broker_calls_are_unavailable_and_health_says_why() -> None:
    async def story() -> None:
        async with GatewayStage(NOBODY) as stage:
            health = await stage.health()
            assert health.status == pb.HealthCheckResponse.NOT_SERVING
            assert NOBODY in health.reason
            for call in (
                stage.produce(stage.record()),
                stage.fetch(stage.position()),
                stage.get_metadata(),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    run(story)


def test_a_gateway_that_stops_ends_its_streams_and_says_so(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.create()
            await stage.produce(stage.record())
            stream = stage.stream(stage.position())
            await stream.read()
            stage.service.close()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stage.read(stream)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert failure_in(ended.value).message == "the gateway stops"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.produce(stage.record())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    run(story)


def test_a_port_in_use_is_refused_and_not_shared(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as first, GatewayStage(bootstrap) as second:
            port = int(first.address.rpartition(":")[2])
            with pytest.raises(ConfigError, match=r"it is in use, .*choose another with --listen$"):
                await second.server.start(HOST, port)

    run(story)
