"""A whole node in this process, on free ports, and our own clients in front of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from distributedlog.broker.node import EXIT_OK, Node
from distributedlog.broker.ready import ReadyReport
from distributedlog.client.admin.admin import Admin
from distributedlog.settings.loading import load_settings
from tests.unit.client.stage import QUICK

TIMEOUT_SECONDS = 60


@asynccontextmanager
async def running_node(directory: Path, settings: dict[str, str] | None = None) -> AsyncIterator[str]:
    """Where clients find it.  It stops cleanly in the end."""
    free = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data")}
    free |= {f"{plane}.listener": "127.0.0.1:0" for plane in ("control", "ops")}
    loop = asyncio.get_running_loop()
    node = Node(load_settings(None, {**free, **(settings or {})}, {}), loop)
    ready: asyncio.Future[ReadyReport] = loop.create_future()
    running = asyncio.create_task(node.run(ready.set_result))
    try:
        report = await asyncio.wait_for(ready, TIMEOUT_SECONDS)
        assert report.client is not None
        yield report.client
    finally:
        node.stop()
        assert await asyncio.wait_for(running, TIMEOUT_SECONDS) == EXIT_OK


@asynccontextmanager
async def admin_of(directory: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Admin]:
    async with running_node(directory, settings) as address, Admin.connect(address, QUICK) as admin:
        yield admin
