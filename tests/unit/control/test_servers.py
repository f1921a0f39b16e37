"""The control server: its port, its limits, and how little it costs to import."""

import asyncio
import subprocess
import sys
import threading

import pytest

from distributedlog.control import options
from distributedlog.control.contract import ControllerReply
from distributedlog.model.errors import ConfigError
from distributedlog.ports.executor import Outcome
from tests.unit.control.stage import HOST, Controller, Node, ask, pool_to, run


def test_a_port_in_use_is_refused_and_not_shared() -> None:
    async def story() -> None:
        node = await Node(1).start()
        other = Node(2)
        said = f"^cannot listen on {HOST}:{node.port}: it is in use, .*choose another in `control.listener`$"
        with pytest.raises(ConfigError, match=said):
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
        node = await Node(1).start()
        port = node.port
        connections = [await asyncio.open_connection(HOST, port) for _ in range(4)]
        greetings = [await reader.read(1) for reader, _ in connections]  # it greets first, or closes
        for _, writer in connections:
            writer.close()
        await node.stop()
        assert [bool(greeting) for greeting in greetings] == [True, True, False, False]

    run(story)


def test_a_connection_without_a_call_makes_way_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "grpc.max_connection_idle_ms"
    assert dict(options.SERVER)[name] == options.IDLE_MS_MAX
    monkeypatch.setattr(options, "SERVER", tuple((dict(options.SERVER) | {name: 200}).items()))

    async def story() -> None:
        node = await Node(1).start()
        port = node.port
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        while await reader.read(1000):
            pass  # its settings, and in the end its farewell
        writer.close()
        await node.stop()

    run(story)


def test_a_server_that_was_never_started_is_stopped_without_harm() -> None:
    async def story() -> None:
        await Node(1).stop()

    run(story)


def test_the_control_plane_runs_on_a_loop_in_a_thread_of_its_own() -> None:
    """It is as in a broker: the main thread has another loop, which knows no gRPC."""
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
        "heavy = 'google.protobuf.descriptor_pb2', 'grpc_reflection.v1alpha', 'grpc_health.v1', 'pyarrow'\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
