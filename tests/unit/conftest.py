"""What unit tests share."""

import asyncio

import grpc
import pytest


@pytest.fixture(scope="session", autouse=True)
def grpc_stays() -> None:
    """Keeps gRPC's poller until the process ends.  With the last channel gRPC waits, without bound, for the
    poller's thread, which at a high load sometimes goes on polling for ever."""

    async def begin() -> None:
        grpc.aio.init_grpc_aio()

    asyncio.run(begin())
