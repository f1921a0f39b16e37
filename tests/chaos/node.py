"""The program of a broker under chaos: a node, put together with a disk and a clock of the tests.

    python -m tests.chaos.node --ready-fd N --set KEY=VALUE … --through PORT=PORT …

Connections to a port that is named by --through go to the other port instead: the proxy's, which leads to
the same broker.  (Other brokers' data ports are learnt from the metadata, which is the same for all brokers;
where the controllers are, each broker is told by its own settings.)  Nothing of the production code knows of
faults: they are in the ports and the loop that it is given here.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distributedlog.broker.logging_setup import configure_logging
from distributedlog.broker.node import run_node
from distributedlog.broker.ready import write_to_descriptor
from distributedlog.cli.key_values import parse_overrides
from distributedlog.settings.loading import load_settings
from tests.chaos.clock import JumpingClock
from tests.chaos.disk import FaultyDisk
from tests.chaos.switches import SWITCHES, Switches


class RedirectedLoop(asyncio.SelectorEventLoop):
    """Connects through the proxy."""

    def __init__(self, through: Mapping[int, int]) -> None:
        super().__init__()
        self._through = through

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **more: Any
    ) -> Any:
        return await super().create_connection(protocol_factory, host, self._through.get(port, port), **more)


class ThroughProxy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, through: Mapping[int, int]) -> None:
        super().__init__()
        self._through = through

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return RedirectedLoop(self._through)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.node")
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--through", action="append", default=[], metavar="PORT=PORT")
    parser.add_argument("--faults", required=True, metavar="DIRECTORY", help="switches and undo journal")
    given = parser.parse_args()
    pairs = (pair.partition("=") for pair in given.through)
    through = {int(port): int(proxy) for port, _, proxy in pairs}
    asyncio.set_event_loop_policy(ThroughProxy(through))
    os.set_inheritable(given.ready_fd, False)
    settings = load_settings(None, parse_overrides(given.settings), os.environ)
    configure_logging(node_id=settings.node_id, log_format=settings.log_format, log_level=settings.log_level)
    return run_node(
        settings,
        on_ready=lambda report: write_to_descriptor(given.ready_fd, report.to_json() + "\n"),
        disk=FaultyDisk(given.faults),
        clock=JumpingClock(Switches(Path(given.faults) / SWITCHES)),
    )


if __name__ == "__main__":
    sys.exit(main())
