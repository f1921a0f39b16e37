"""The gateway's metadata and health, and what it does before it is ready and when it stops."""

from pathlib import Path

import grpc
import pytest

from distributedlog.broker.addresses import Endpoint as Address
from distributedlog.broker.addresses import Listener, parse_listeners
from distributedlog.broker.data_plane import advertised_gateway
from distributedlog.broker.gateway.late import GATEWAY_LISTENER
from distributedlog.broker.gateway.metadata import TOPICS_MAX, metadata_of
from distributedlog.broker.settings import NodeSettings
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.controller.image import Endpoint
from distributedlog.model.errors import ConfigError, PolicyViolationError
from tests.unit.broker.gateway.stage import GatewayStage, failure_in, position, record, run
from tests.unit.broker.partition_stage import CLUSTER, ME, OTHER, Metadata, topic_id


def test_the_metadata_names_brokers_topics_and_leaders(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.register(ME, Address("::1", 9094))
            await stage.register(OTHER)
            await stage.create("b", 2, replicas=(OTHER, ME), leader=OTHER, epoch=3)
            await stage.create("a", leader=-1)
            told = await stage.get_metadata()
            assert told.cluster_id == CLUSTER
            assert [(each.broker_id, each.host, each.port, each.rack) for each in told.brokers] == [
                (ME, "kafka", 9001, "r1"),
                (OTHER, "kafka", 9002, "r1"),
            ]
            assert [each.gateway for each in told.brokers] == ["[::1]:9094", ""]
            assert not told.brokers[1].HasField("gateway")
            assert [each.name for each in told.topics] == ["a", "b"]
            assert not told.topics[0].partitions[0].HasField("leader")
            assert told.topics[1].topic_id == topic_id(1).bytes16
            assert [
                (each.partition, each.leader, each.leader_epoch, list(each.replicas), list(each.isr))
                for each in told.topics[1].partitions
            ] == [(at, OTHER, 3, [OTHER, ME], [OTHER, ME]) for at in range(2)]

    run(story)


def test_topics_are_told_of_as_named(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("a")
            await stage.create("b")
            told = await stage.get_metadata("b", "absent", "b", "no/name")
            assert [each.name for each in told.topics] == ["b", "absent", "no/name"]
            assert [each.failure.name for each in told.topics] == [
                "", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION",
            ]  # fmt: skip
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.get_metadata(*(f"t{n}" for n in range(TOPICS_MAX + 1)))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(story)


def test_metadata_that_fits_no_message_is_refused() -> None:
    metadata = Metadata()
    metadata.create("large", 1, 11)

    async def story() -> None:
        with pytest.raises(PolicyViolationError, match="name fewer topics"):
            await metadata_of(
                metadata.image, [], client_listener="PLAINTEXT", gateway_listener="none", partitions_max=10
            )

    run(story)


def test_other_brokers_are_told_where_the_gateway_is() -> None:
    settings = NodeSettings(
        listeners=(Listener("PLAINTEXT", "0.0.0.0", 9092),),
        advertised_listeners=(Listener("PLAINTEXT", "broker-1.example", 9092),),
        insecure=True,
    )
    anywhere = advertised_gateway(settings, Address("0.0.0.0", 4711))
    assert anywhere == Endpoint(GATEWAY_LISTENER, "broker-1.example", 4711)
    assert advertised_gateway(settings, Address("127.0.0.1", 4711)).host == "127.0.0.1"
    with pytest.raises(ConfigError):
        parse_listeners("listeners", f"{GATEWAY_LISTENER}://127.0.0.1:9092")


def test_health_says_why_a_node_does_not_serve(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, is_open=False) as stage:
            assert (await stage.health()).status == pb.HealthCheckResponse.NOT_SERVING
            stage.service.open()
            assert (await stage.health()).status == pb.HealthCheckResponse.SERVING
            stage.not_ready = "fenced"
            told = await stage.health()
            assert (told.status, told.reason) == (pb.HealthCheckResponse.NOT_SERVING, "fenced")

    run(story)


def test_nothing_is_served_before_the_node_is_ready(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path, is_open=False) as stage:
            await stage.create("t")
            for call in (stage.produce(record()), stage.fetch(position()), stage.get_metadata()):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
                assert failure_in(refused.value).name == "BROKER_NOT_AVAILABLE"
            stage.service.open()
            assert len(await stage.produce(record())) == 1

    run(story)


def test_a_node_that_stops_ends_its_streams_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with GatewayStage(tmp_path) as stage:
            await stage.create("t")
            stream = stage.stream(position())
            await stage.until(lambda: stage.delayed.parked_count == 1)
            stage.service.close()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stage.read(stream)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert failure_in(ended.value).message == "the broker stops"
            assert stage.delayed.parked_count == 0
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stage.produce(record())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    run(story)
