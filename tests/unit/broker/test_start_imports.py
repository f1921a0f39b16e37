"""What a node's start waits for: nothing that only some clients, or other nodes, make it use."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

LATE = {
    "messages of gRPC, and what answers them": (
        "google.protobuf",
        "distributedlog.control._generated",
        "distributedlog.control.conversion.envelope",
        "distributedlog.control.services",
        "grpc_health.v1",
        "grpc_reflection.v1alpha",
    ),
    "groups": ("distributedlog.broker.coordination.coordinators", "distributedlog.groups.machine"),
    "handlers and their messages": (
        "distributedlog.broker.handlers.produce",
        "distributedlog.protocol.messages.fetch",
    ),
    "compression": ("distributedlog.records.codecs", "cramjam", "lz4"),
    "what the command line shows things with": ("rich", "structlog"),
    "what no broker needs": (
        "distributedlog.client",
        "distributedlog.embedded",
        "distributedlog.spark",
        "prometheus_client",
        "pyarrow",
        "importlib.metadata",
        "email",
        "http",
        "multiprocessing",
        "pickle",
        "hashlib",
        "tempfile",
    ),
}

PROGRAM = """
import json, os, signal, sys
from distributedlog.cli.main import main
import distributedlog.broker.ready as ready

def tell(path, line):
    print(json.dumps(sorted(sys.modules)), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

ready.write_file_atomically = tell
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """Returns what is imported when a node of its own says that it is ready.  It is started as users start
    it: what `DLOG_KERNEL` asks for needs modules of its own."""
    directory: Path = tmp_path_factory.mktemp("node")
    settings = [
        f"log.dirs={directory / 'data'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        *(f"{name}.listener=127.0.0.1:0" for name in ("control", "ops")),
    ]
    options = [part for setting in settings for part in ("--set", setting)]
    arguments = ["server", "start", "--ready-file", str(directory / "ready"), *options]
    environment = {name: value for name, value in os.environ.items() if name != "DLOG_KERNEL"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize("subject", LATE)
def test_a_start_does_not_wait_for_what_is_used_later(subject: str, imported: frozenset[str]) -> None:
    assert imported.isdisjoint(LATE[subject])


def test_what_a_start_needs_is_seen_and_what_it_leaves_out_is_spelt_right(imported: frozenset[str]) -> None:
    assert {"grpc", "distributedlog.control.server", "distributedlog.broker.data_plane"} <= imported
    ours = [name for names in LATE.values() for name in names if name.startswith("distributedlog.")]
    assert [name for name in ours if find_spec(name) is None] == []
