"""The gateway's port as gRPC's own clients see it: health that is watched, reflection, limits."""

import asyncio
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from distributedlog.gateway import options
from distributedlog.gateway.service import BROKER_SERVICE
from tests.system.server_process import ServerProcess
from tests.unit.gateway.stage import HOST, GatewayStage, run

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def test_who_watches_hears_when_the_cluster_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        with ServerProcess(tmp_path, {}) as broker:
            stage = await GatewayStage(str(broker.facts["client"])).__aenter__()
            await stage.server.check_health()
            watch = health_pb2_grpc.HealthStub(stage.channel).Watch(health_pb2.HealthCheckRequest(service=""))
            assert (await watch.read()).status == SERVING
            assert broker.stop() == 0
        await stage.server.check_health()
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await stage.__aexit__()

    run(story)


def test_a_gateway_that_stops_is_never_serving_again(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.server.check_health()
            watch = health_pb2_grpc.HealthStub(stage.channel).Watch(health_pb2.HealthCheckRequest(service=""))
            assert (await watch.read()).status == SERVING
            stopping = asyncio.ensure_future(stage.server.stop())
            assert (await watch.read()).status == NOT_SERVING
            watch.cancel()
            await stopping
            await stage.server.check_health()

    run(story)


def test_generic_tools_find_the_services_and_their_messages(bootstrap: str) -> None:
    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            stub = reflection_pb2_grpc.ServerReflectionStub(stage.channel)
            requests = [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=BROKER_SERVICE),
            ]
            listed, found = [response async for response in stub.ServerReflectionInfo(iter(requests))]
            names = {service.name for service in listed.list_services_response.service}
            assert names == {
                BROKER_SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
            }  # fmt: skip
            files = b"".join(found.file_descriptor_response.file_descriptor_proto)
            assert b"dlog/v1/broker_service.proto" in files

    run(story)


def test_it_takes_only_so_many_connections(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "grpc.max_allowed_incoming_connections"
    assert dict(options.SERVER)[name] == options.CONNECTIONS_MAX
    monkeypatch.setattr(options, "SERVER", tuple((dict(options.SERVER) | {name: 2}).items()))

    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            port = int(stage.address.rpartition(":")[2])
            connections = [await asyncio.open_connection(HOST, port) for _ in range(4)]
            greetings = [await reader.read(1) for reader, _ in connections]  # it greets first, or closes
            for _, writer in connections:
                writer.close()
            assert [bool(greeting) for greeting in greetings] == [True, True, False, False]

    run(story)


def test_a_connection_without_a_call_makes_way_after_a_while(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "grpc.max_connection_idle_ms"
    assert dict(options.SERVER)[name] == options.IDLE_MS_MAX
    monkeypatch.setattr(options, "SERVER", tuple((dict(options.SERVER) | {name: 200}).items()))

    async def story() -> None:
        async with GatewayStage(bootstrap) as stage:
            await stage.health()
            await asyncio.wait_for(closed(stage.channel), 10)
            await stage.health()  # it connects anew

    async def closed(channel: grpc.aio.Channel) -> None:
        state = channel.get_state()
        while state is grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(state)
            state = channel.get_state()

    run(story)
