"""The gateway's process, from start to stop.

    listen ──► report that it serves ──► look at the cluster's health now and then ──► SIGTERM: drain, close

It listens whether or not a broker is reached: callers get UNAVAILABLE, and health says why, until one is.
"""

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable, Sequence
from typing import Final

from distributedlog.client.addresses import Address
from distributedlog.client.options import ClientOptions
from distributedlog.gateway.clients import GatewayClients
from distributedlog.gateway.metrics import GatewayMetrics
from distributedlog.gateway.server import GatewayServer
from distributedlog.gateway.service import BrokerService
from distributedlog.ports.clock import SystemClock

HEALTH_PERIOD_S: Final = 2.0
FIRST_PARTITION_MAX: Final = 1_000

logger = logging.getLogger(__name__)


async def run_gateway(
    bootstrap: Sequence[Address],
    host: str,
    port: int,
    on_ready: Callable[[Address], None],
    options: ClientOptions | None = None,
    metrics: GatewayMetrics | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; `on_ready` gets the address that is listened on."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    clients = GatewayClients(bootstrap, options or ClientOptions())
    first_partition = random.SystemRandom().randrange(FIRST_PARTITION_MAX)
    service = BrokerService(clients, SystemClock(), first_partition=first_partition, metrics=metrics)
    server = GatewayServer(service, metrics)
    try:
        bound = Address(host, await server.start(host, port))
        logger.info("the gateway listens on %s", bound)
        await server.check_health()
        on_ready(bound)
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), HEALTH_PERIOD_S)
            await server.check_health()
    finally:
        await server.stop()
        await clients.close()
