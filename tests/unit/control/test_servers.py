"""The servers: ports, health and reflection as gRPC's own clients see them, and how little they cost."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from distributedlog.control import options
from distributedlog.control._generated import broker_service_pb2 as pb
from distributedlog.control.contract import ControllerReply
from distributedlog.control.gateway import BROKER_SERVICE, GatewayServer
from distributedlog.control.health import Health
from distributedlog.model.errors import ConfigError
from distributedlog.ports.executor import Outcome
from tests.unit.control.stage import HOST, Controller, Node, ask, pool_to, run

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def answer_health(request: pb.HealthCheckRequest, context: object) -> pb.HealthCheckResponse:
    return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING)


def broker_service() -> grpc.GenericRpcHandler:
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "HealthCheck": grpc.unary_unary_rpc_method_handler(
            answer_health,
            request_deserializer=pb.HealthCheckRequest.FromString,
            response_serializer=pb.HealthCheckResponse.SerializeToString,
        )
    }
    return grpc.method_handlers_generic_handler(BROKER_SERVICE, methods)


async def health_of(channel: grpc.aio.Channel, service: str) -> object:
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


def test_the_gateway_serves_from_when_it_is_told_to_be_ready() -> None:
    async def story() -> None:
        gateway = GatewayServer()
        gateway.add(BROKER_SERVICE, broker_service())
        port = await gateway.start(HOST, 0)
        channel = grpc.aio.insecure_channel(f"{HOST}:{port}")
        for service in ("", BROKER_SERVICE):
            assert await health_of(channel, service) == NOT_SERVING
        await gateway.set_ready(True)
        for service in ("", BROKER_SERVICE):
            assert await health_of(channel, service) == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health_of(channel, "dlog.v1.Nobody")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        await gateway.set_ready(False)
        assert await health_of(channel, "") == NOT_SERVING
        await channel.close()
        await gateway.stop()

    run(story)


def test_health_is_known_before_anybody_asks_and_told_to_who_watches() -> None:
    async def story() -> None:
        gateway = GatewayServer()
        gateway.add(BROKER_SERVICE, broker_service())
        await gateway.set_ready(True)
        port = await gateway.start(HOST, 0)
        channel = grpc.aio.insecure_channel(f"{HOST}:{port}")
        assert await health_of(channel, BROKER_SERVICE) == SERVING
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == SERVING
        await gateway.set_ready(False)
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await channel.close()
        await gateway.stop()

    run(story)


def test_a_gateway_that_stops_is_never_ready_again() -> None:
    async def story() -> None:
        health = Health()
        await health.set_ready(True)
        await health.stop()
        await health.set_ready(True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([health.handler()])
        port = server.add_insecure_port(f"{HOST}:0")
        await server.start()
        channel = grpc.aio.insecure_channel(f"{HOST}:{port}")
        assert await health_of(channel, "") == NOT_SERVING
        await channel.close()
        await server.stop(None)

    run(story)


def test_generic_tools_find_the_services_and_their_messages() -> None:
    async def story() -> None:
        gateway = GatewayServer()
        gateway.add(BROKER_SERVICE, broker_service())
        port = await gateway.start(HOST, 0)
        channel = grpc.aio.insecure_channel(f"{HOST}:{port}")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        questions = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=BROKER_SERVICE),
        ]
        listed, found = [answer async for answer in stub.ServerReflectionInfo(iter(questions))]
        names = {service.name for service in listed.list_services_response.service}
        assert names == {
            BROKER_SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
        }  # fmt: skip
        files = b"".join(found.file_descriptor_response.file_descriptor_proto)
        assert b"dlog/v1/broker_service.proto" in files
        check = channel.unary_unary(
            f"/{BROKER_SERVICE}/HealthCheck",
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        assert (await check(pb.HealthCheckRequest())).status == pb.HealthCheckResponse.SERVING
        await channel.close()
        await gateway.stop()

    run(story)


def test_a_port_in_use_is_refused_and_not_shared() -> None:
    async def story() -> None:
        node = await Node(1).start()
        other = Node(2)
        with pytest.raises(ConfigError, match=f"cannot listen on {HOST}:{node.port}"):
            await other.start(node.port)
        await other.stop()
        await node.stop()

    run(story)


def test_a_server_takes_only_so_many_connections_and_leaves_descriptors_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "grpc.max_allowed_incoming_connections"
    assert dict(options.SERVER)[name] == options.CONNECTIONS_MAX
    monkeypatch.setattr(options, "SERVER", tuple((dict(options.SERVER) | {name: 2}).items()))

    async def story() -> None:
        gateway = GatewayServer()
        port = await gateway.start(HOST, 0)
        connections = [await asyncio.open_connection(HOST, port) for _ in range(4)]
        greetings = [await reader.read(1) for reader, _ in connections]  # it greets first, or closes
        for _, writer in connections:
            writer.close()
        await gateway.stop(0)
        assert [bool(greeting) for greeting in greetings] == [True, True, False, False]

    run(story)


def test_a_connection_without_a_call_makes_way_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "grpc.max_connection_idle_ms"
    assert dict(options.SERVER)[name] == options.IDLE_MS_MAX
    monkeypatch.setattr(options, "SERVER", tuple((dict(options.SERVER) | {name: 200}).items()))

    async def story() -> None:
        gateway = GatewayServer()
        port = await gateway.start(HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        while await reader.read(1000):
            pass  # its settings, and in the end its farewell
        writer.close()
        channel = grpc.aio.insecure_channel(f"{HOST}:{port}")
        assert await health_of(channel, "") == NOT_SERVING
        await asyncio.wait_for(closed(channel), 10)
        assert await health_of(channel, "") == NOT_SERVING, "it connects anew"
        await channel.close()
        await gateway.stop(0)

    async def closed(channel: grpc.aio.Channel) -> None:
        state = channel.get_state()
        while state is grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(state)
            state = channel.get_state()

    run(story)


def test_control_and_gateway_run_on_one_loop() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        gateway = GatewayServer()
        gateway_port = await gateway.start(HOST, 0)
        assert gateway_port != node.port
        pool = pool_to(node)
        answer = ask(pool, 2)
        (await controller.asked.get())[2](Outcome(ControllerReply(None, 1)))
        assert (await answer).error is None
        channel = grpc.aio.insecure_channel(f"{HOST}:{gateway_port}")
        assert await health_of(channel, "") == NOT_SERVING
        await channel.close()
        await pool.close()
        await gateway.stop()
        await node.stop()

    run(story)


def test_servers_that_were_never_started_are_stopped_without_harm() -> None:
    async def story() -> None:
        await Node(1).stop()
        await GatewayServer().stop()

    run(story)


def test_the_control_plane_runs_on_a_loop_in_a_thread_of_its_own() -> None:
    """As in a broker: the main thread has another loop, which knows no gRPC."""
    failures: list[BaseException] = []

    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        for offset in range(20):
            answer = ask(pool, 2)
            (await controller.asked.get())[2](Outcome(ControllerReply(None, offset)))
            assert (await answer).value().offset == offset
        await pool.close()
        await node.stop()

    def control() -> None:
        try:
            run(story)
        except BaseException as error:
            failures.append(error)

    async def data_loop() -> None:
        thread = threading.Thread(target=control, name="control")
        thread.start()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    asyncio.run(data_loop())
    assert not failures


def test_importing_the_control_plane_brings_in_only_what_it_needs() -> None:
    program = (
        "import sys, distributedlog.control.server, distributedlog.control.watcher\n"
        "import distributedlog.control.gateway\n"
        "heavy = 'google.protobuf.descriptor_pb2', 'grpc_reflection.v1alpha', 'grpc_health.v1', 'pyarrow'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
