"""The program of a broker under chaos: a node, put together with a disk and a clock of the tests.

    python -m tests.chaos.node --ready-fd N --set KEY=VALUE …

Nothing of the production code knows of faults: they are in the ports that it is given here.
"""

import argparse
import os
import sys

from distributedlog.broker.logging_setup import configure_logging
from distributedlog.broker.node import run_node
from distributedlog.broker.ready import write_to_descriptor
from distributedlog.cli.key_values import parse_overrides
from distributedlog.settings.loading import load_settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.node")
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    given = parser.parse_args()
    os.set_inheritable(given.ready_fd, False)
    settings = load_settings(None, parse_overrides(given.settings), os.environ)
    configure_logging(node_id=settings.node_id, log_format=settings.log_format, log_level=settings.log_level)
    return run_node(
        settings, on_ready=lambda report: write_to_descriptor(given.ready_fd, report.to_json() + "\n")
    )


if __name__ == "__main__":
    sys.exit(main())
