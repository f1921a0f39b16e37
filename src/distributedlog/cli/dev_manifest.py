"""What a development cluster's directory holds, and what must stay the same when it is started again.

    DIR/dev.json       the manifest: cluster id, node ids, ports
    DIR/cluster.secret what the nodes prove with that they are of this cluster: one file for all
    DIR/.dev.lock      held while a `dlog dev` runs on it
    DIR/node-1/        node 1's data directory
    DIR/node-1.log     what node 1 said

    {"version": 1, "cluster_id": "…", "formatted": true,
     "gateway": 20412, "nodes": [{"id": 1, "client": 9092, "control": 20411, "ops": 20413}]}

The manifest is written before the nodes' directories are made, with `formatted` false, and again after:
a crash in between repeats the making, with the same cluster id, and directories that are made already stay.
(A node alone makes its own, and `formatted` is true once it has served.)  Once it is true directories are
never made again: a node that lost its own must not come back new and empty, or as if it had never voted.

All of it is its owner's alone: directories 0700, files 0600.
"""

import base64
import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from distributedlog.cli.ports import PortReservations
from distributedlog.model.errors import ConfigError, CorruptLogError, DirectoryLockedError

MANIFEST_FILE: Final = "dev.json"
SECRET_FILE: Final = "cluster.secret"  # noqa: S105 - a name
LOCK_FILE: Final = ".dev.lock"
META_PROPERTIES_FILE: Final = "meta.properties"
"""Every node's directory has it (storage/checkpoints)."""
MANIFEST_BYTES_MAX: Final = 1024 * 1024
BROKERS_MAX: Final = 25
PORT_MAX: Final = 65535
PORT_DEFAULT: Final = 9092
PURPOSES: Final = ("client", "control", "ops")


@dataclass(frozen=True, slots=True)
class DevNode:
    id: int
    client: int
    control: int
    ops: int

    def data_dir(self, directory: str) -> str:
        return os.path.join(directory, f"node-{self.id}")

    def log_path(self, directory: str) -> str:
        return os.path.join(directory, f"node-{self.id}.log")


@dataclass(frozen=True, slots=True)
class Manifest:
    cluster_id: str
    nodes: tuple[DevNode, ...]
    gateway: int
    """The port of the gateway beside the brokers."""
    formatted: bool = False

    def gateway_log_path(self, directory: str) -> str:
        return os.path.join(directory, "gateway.log")

    def to_json(self) -> str:
        nodes = [{"id": node.id} | {name: getattr(node, name) for name in PURPOSES} for node in self.nodes]
        facts = {
            "version": 1,
            "cluster_id": self.cluster_id,
            "formatted": self.formatted,
            "gateway": self.gateway,
            "nodes": nodes,
        }
        return json.dumps(facts, indent=2) + "\n"


# --- the file ----------------------------------------------------------------------------------


def lock_directory(directory: str) -> int:
    """Makes the directory if it is not there; the descriptor that holds its lock until it is closed."""
    os.makedirs(directory, 0o700, exist_ok=True)
    lock = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DirectoryLockedError(
            f"{directory} is in use by another dlog dev; stop it, or name another --data-dir"
        ) from None
    return lock


def load_manifest(directory: str) -> Manifest | None:
    """Returns the manifest, or None if there is none."""
    path = os.path.join(directory, MANIFEST_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        facts = json.loads(text)
        if facts["version"] != 1:
            raise ConfigError(f"{path} was written by a newer dlog")
        nodes = tuple(_read_node(each) for each in facts["nodes"][: BROKERS_MAX + 1])
        # Earlier versions had a gateway in every node; the first one's port is kept.
        gateway = _read_port(facts["gateway"] if "gateway" in facts else facts["nodes"][0]["gateway"])
        manifest = Manifest(str(facts["cluster_id"]), nodes, gateway, facts["formatted"] is True)
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        manifest = None
    if manifest is None or not 0 < len(manifest.nodes) <= BROKERS_MAX:
        raise CorruptLogError(
            f"{path} is not a manifest of dlog dev; restore it, or begin with another --data-dir"
        )
    return manifest


def _read_node(facts: Mapping[str, Any]) -> DevNode:
    return DevNode(**{name: _read_port(facts[name]) for name in ("id", *PURPOSES)})


def _read_port(number: object) -> int:
    if type(number) is not int or not 0 < number <= PORT_MAX:
        raise ValueError("not a port")
    return number


def save_manifest(directory: str, manifest: Manifest) -> None:
    """Writes the manifest durably: a crash leaves the old one or the new one."""
    path = os.path.join(directory, MANIFEST_FILE)
    scratch = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(scratch)  # a link would lead the writing elsewhere
    with open(scratch, "x", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


# --- making and adapting one -------------------------------------------------------------------


def new_cluster_id() -> str:
    """Returns sixteen random bytes as Kafka writes them; none that would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):
            return text


def settle_manifest(
    directory: str, brokers: int | None, port: int | None, reservations: PortReservations
) -> Manifest:
    """The manifest to run with: the directory's own or a new one.  All its ports are reserved."""
    kept = load_manifest(directory)
    if kept is None:
        return _make_manifest(directory, brokers or 1, PORT_DEFAULT if port is None else port, reservations)
    if brokers is not None and brokers != len(kept.nodes):
        raise ConfigError(
            f"{directory} holds a cluster of {len(kept.nodes)}, not of {brokers}; "
            f"leave --brokers away, or name another --data-dir"
        )
    if port:
        _check_range(port, len(kept.nodes))
        moved = (replace(node, client=port + at) for at, node in enumerate(kept.nodes))
        kept = replace(kept, nodes=tuple(moved))
    _reserve_all(kept, reservations, os.path.join(directory, MANIFEST_FILE))
    return kept


def _make_manifest(directory: str, brokers: int, port: int, reservations: PortReservations) -> Manifest:
    _check_range(port, brokers)
    orphans = [name for name in sorted(os.listdir(directory)) if name.startswith("node-")]
    if orphans:
        raise ConfigError(
            f"{directory} has {orphans[0]} but no {MANIFEST_FILE}: restore that, or name another --data-dir"
        )
    clients = [_reserve_client(port + at, reservations) if port else 0 for at in range(brokers)]
    wanted = range(port, port + brokers)
    nodes = [
        DevNode(at + 1, *(given or reservations.reserve_free(wanted) for given in (client, 0, 0)))
        for at, client in enumerate(clients)
    ]
    return Manifest(new_cluster_id(), tuple(nodes), reservations.reserve_free(wanted))


def _check_range(port: int, brokers: int) -> None:
    if port and port + brokers - 1 > PORT_MAX:
        raise ConfigError(f"--port {port} leaves no room for {brokers} brokers below {PORT_MAX}")


def _reserve_client(port: int, reservations: PortReservations) -> int:
    reservations.reserve(port, "clients", "stop it, or choose other ports with --port")
    return port


def _reserve_all(manifest: Manifest, reservations: PortReservations, path: str) -> None:
    for node in manifest.nodes:
        _reserve_client(node.client, reservations)
    for node in manifest.nodes:
        for purpose in PURPOSES[1:]:
            reservations.reserve(
                getattr(node, purpose),
                f"the {purpose} plane of node {node.id}",
                f"stop it, or write another port into {path}",
            )
    reservations.reserve(manifest.gateway, "the gateway", f"stop it, or write another port into {path}")
