"""A node in this process: it accepts clients only once the cluster has let it in and its image says so."""

import asyncio
import socket
from pathlib import Path

import pytest

from distributedlog.broker.cluster.lifecycle import LifecycleState
from distributedlog.broker.node import EXIT_OK, Node
from distributedlog.broker.ready import ReadyReport
from distributedlog.settings.loading import load_settings
from distributedlog.settings.node_settings import NodeSettings

TIMEOUT_SECONDS = 60


def settings_in(directory: Path, **given: str) -> NodeSettings:
    free = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data")}
    free |= {f"{plane}.listener": "127.0.0.1:0" for plane in ("control", "ops")}
    return load_settings(None, {**free, **{k.replace("_", "."): v for k, v in given.items()}}, {})


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_clients_are_not_accepted_before_the_broker_is_unfenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks a fenced broker for brokers finds none, and forgets the only one it knew."""

    async def story() -> tuple[list[bool], bool, int]:
        node = Node(settings_in(tmp_path), asyncio.get_running_loop())
        before: list[bool] = []
        changed = node._lifecycle_changed

        def watched(state: LifecycleState, epoch: int) -> None:
            assert node._data is not None
            before.append(accepts(int(node._data.client_address.rsplit(":", 1)[1])))
            changed(state, epoch)

        monkeypatch.setattr(node, "_lifecycle_changed", watched)
        ready: asyncio.Future[ReadyReport] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(node.run(ready.set_result))
        report = await asyncio.wait_for(ready, TIMEOUT_SECONDS)
        assert report.client is not None
        after = accepts(int(report.client.rsplit(":", 1)[1]))
        node.stop()
        return before[:2], after, await asyncio.wait_for(running, TIMEOUT_SECONDS)

    before, after, code = asyncio.run(story())
    assert before == [False, False], "fenced, and unfenced but not accepting yet"
    assert after
    assert code == EXIT_OK
