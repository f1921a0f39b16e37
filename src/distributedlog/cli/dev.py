"""`dlog dev`: a cluster on this machine, in the foreground, for trying things out and for tests.

This process starts one `dlog server start` for each broker and watches over them (`supervisor`); it holds no
data itself.  The manifest in the data directory (`dev_manifest`) keeps ids and ports over restarts.  Without
--data-dir all is in a temporary directory, which is removed at the end.

When every broker serves, the ready file is written; and again when one that died serves anew:

    {"bootstrap": "127.0.0.1:9092,127.0.0.1:9093", "console": null, "gateway": "127.0.0.1:…",
     "brokers": [{"id": 1, "pid": 123, "client": "127.0.0.1:9092", "control": "…", "ops": "…",
                  "data_dir": "…"}, …]}

The gateway is a process beside the brokers, started when all of them serve; nobody waits for it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Final

import click

import distributedlog
from distributedlog.cli.dev_manifest import (
    BROKERS_MAX,
    META_PROPERTIES_FILE,
    PORT_DEFAULT,
    PORT_MAX,
    SECRET_FILE,
    DevNode,
    Manifest,
    load_manifest,
    lock_directory,
    save_manifest,
    settle_manifest,
)
from distributedlog.cli.key_values import parse_overrides, set_option
from distributedlog.cli.ports import LOOPBACK, PortReservations
from distributedlog.cli.supervisor import Death, Plan, Report, Supervisor
from distributedlog.model.errors import StorageError

OURS: Final = (
    "node.id",
    "process.roles",
    "cluster.id",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "control.listener",
    "ops.listener",
    "controller.quorum.voters",
    "cluster.secret.file",
    "insecure",
)
"""Settings that `dlog dev` decides."""
RACK: Final = "broker.rack"
PROXIED: Final = "proxied"
"""No setting of a node: what `--proxied` says, until each node's listeners are made of it."""
FORMAT_SECONDS_MAX: Final = 60
DRAIN_MS: Final = 2_000
"""All stop together here, so those that stop last have nobody to hand over to, and wait for nothing."""
STOP_SLACK_SECONDS: Final = 15.0
"""What a broker may need to stop beyond its drain timeout."""


@click.command()
@click.option(
    "--brokers", type=click.IntRange(1, BROKERS_MAX), metavar="N", help="How many brokers.  [default: 1]"
)
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    metavar="P",
    help=f"Clients' ports are P, P+1, …; 0 for any free ones.  [default: {PORT_DEFAULT}]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep everything in DIR; without it nothing is kept.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False),
    metavar="F",
    help="Written when every broker serves, and when a broker was restarted: JSON.",
)
@click.option("--no-restart", is_flag=True, help="Leave a broker that dies down.")
@click.option(
    "--auto-create/--no-auto-create", default=True, show_default=True, help="Create topics on first use."
)
@click.option(
    "--racks",
    metavar="A,B,…",
    help="Racks in which the brokers stand, in turn; consumers name one by client.rack.",
)
@click.option(
    "--proxied",
    metavar="P:L,…",
    hidden=True,
    help="Clients are told ports P; the brokers listen at L for them.",
)
@click.option("--no-gateway", is_flag=True, help="Start no gRPC gateway beside the brokers.")
@set_option
def dev(
    brokers: int | None,
    port: int | None,
    data_dir: str | None,
    ready_file: str | None,
    no_restart: bool,
    auto_create: bool,
    racks: str | None,
    proxied: str | None,
    no_gateway: bool,
    settings: tuple[str, ...],
) -> int:
    """Run a cluster on this machine until Ctrl-C.

    Topics are created when they are first used, unless switched off.  Every Kafka client works with it.

    \b
    dlog dev                                  one broker on 127.0.0.1:9092, nothing is kept
    dlog dev --brokers 3 --data-dir ./data    three on 9092, 9093, 9094; the same again next time
    dlog dev --port 0 --ready-file ready.json any free port; read it from the file (for tests)
    """
    overrides = parse_overrides(settings)
    for name in overrides:
        if name in OURS:
            raise click.UsageError(f"--set {name}: dlog dev decides that itself; see dlog server start")
    overrides.setdefault("auto.create.topics.enable", "true" if auto_create else "false")
    overrides.setdefault("drain.timeout.ms", str(DRAIN_MS))
    if racks is not None:
        overrides[RACK] = racks
    if proxied is not None:
        overrides[PROXIED] = proxied
    # Whoever tries something out starts one consumer, and should not wait for others.
    overrides.setdefault("group.initial.rebalance.delay.ms", "0")
    with _handled(_leave), _directory(data_dir) as directory, PortReservations() as reservations:
        manifest = settle_manifest(directory, brokers, port, reservations)
        drain_seconds = _check_settings(directory, manifest, overrides)
        _check_nothing_lost(directory, manifest)
        _make_secret(directory)
        manifest = _format(directory, manifest, overrides)
        gateway = None if no_gateway else f"{LOOPBACK}:{manifest.gateway}"
        reporter = _Reporter(directory, ready_file, gateway, manifest, is_kept=data_dir is not None)
        nodes = {node.id: node for node in manifest.nodes}
        reporter.forget_old_report()
        plans = [
            Plan(node.id, _start_arguments(directory, manifest, node, overrides), node.log_path(directory))
            for node in manifest.nodes
        ]
        if gateway is not None:
            plans.append(_gateway_plan(directory, manifest, gateway))
        supervisor = Supervisor(
            plans,
            _start_command,
            reporter,
            environment=_environment(),
            restarts=not no_restart,
            stop_seconds_max=drain_seconds + STOP_SLACK_SECONDS,
            lost=lambda plan: None if plan.is_companion else lost_directory(directory, nodes[plan.node_id]),
        )
        with _handled(lambda number, frame: supervisor.stop()):
            return supervisor.run()


# --- the directory -----------------------------------------------------------------------------


@contextlib.contextmanager
def _directory(data_dir: str | None) -> Iterator[str]:
    """Locks and yields the directory; a temporary one is removed at the end."""
    directory = os.path.abspath(data_dir) if data_dir else tempfile.mkdtemp(prefix="dlog-dev-")
    try:
        mask = os.umask(0o077)  # also for what the nodes write: logs, directories
        try:
            lock = lock_directory(directory)
            if load_manifest(directory) is not None:
                os.chmod(directory, 0o700)  # of an earlier version; one that is not ours is left as it is
            try:
                yield directory
            finally:
                os.close(lock)
        finally:
            os.umask(mask)
    finally:
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)


def _check_nothing_lost(directory: str, manifest: Manifest) -> None:
    """A node that was here and whose directory is gone must not come back as a new and empty one."""
    for node in manifest.nodes if manifest.formatted else ():
        lost = lost_directory(directory, node)
        if lost is not None:
            raise StorageError(lost)


def lost_directory(directory: str, node: DevNode) -> str | None:
    """Returns what to say of a node's directory that was made and is not there any more."""
    own = node.data_dir(directory)
    if os.path.exists(os.path.join(own, META_PROPERTIES_FILE)):
        return None
    return (
        f"the directory of node {node.id}, {own}, is gone, with all that only this node held: bring it back "
        "from a copy, or begin anew with another --data-dir"
    )


def _make_secret(directory: str) -> None:
    """One for all nodes, also in a directory of before there were secrets."""
    from distributedlog.settings.secret_file import make_secret_file

    make_secret_file(os.path.join(directory, SECRET_FILE))


def _format(directory: str, manifest: Manifest, overrides: dict[str, str]) -> Manifest:
    """Makes the nodes' directories if this is the first time; writes the manifest down."""
    if not manifest.formatted:
        save_manifest(directory, manifest)
        if len(manifest.nodes) > 1:  # the only voter makes its own, and is formatted once it serves
            _format_all(directory, manifest, overrides)
            manifest = replace(manifest, formatted=True)
            save_manifest(directory, manifest)
    elif manifest != load_manifest(directory):
        save_manifest(directory, manifest)  # clients' ports were moved
    return manifest


def _format_all(directory: str, manifest: Manifest, overrides: dict[str, str]) -> None:
    """All at once: most of their time is the interpreter's start."""
    running = [
        subprocess.Popen(
            [*_format_command(), *_arguments(directory, manifest, node, overrides)],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for node in manifest.nodes
    ]
    for node, process in zip(manifest.nodes, running, strict=True):
        _, output = process.communicate(timeout=FORMAT_SECONDS_MAX)
        if process.returncode:
            lines = output.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            raise click.ClickException(f"node {node.id}'s directory could not be made: {lines[-1]}")


# --- the children ------------------------------------------------------------------------------


def _dlog() -> list[str]:
    """Ourselves; what happens to lie in the working directory is not imported."""
    return [sys.executable, "-P", "-m", "distributedlog.cli.main"]


def _format_command() -> list[str]:
    return [*_dlog(), "server", "format", "--ignore-formatted"]


def _gateway_plan(directory: str, manifest: Manifest, gateway: str) -> Plan:
    bootstrap = ",".join(f"{LOOPBACK}:{node.client}" for node in manifest.nodes)
    arguments = ("--bootstrap", bootstrap, "--listen", gateway)
    return Plan(0, arguments, manifest.gateway_log_path(directory), is_companion=True)


def _start_command(plan: Plan, ready_fd: int) -> list[str]:
    if plan.is_companion:
        return [*_dlog(), "gateway", "--ready-fd", str(ready_fd), *plan.arguments]
    return [*_dlog(), "server", "start", "--ready-fd", str(ready_fd), *plan.arguments]


def _environment() -> dict[str, str]:
    """The children find this very package, also where it is not installed."""
    assert distributedlog.__file__ is not None
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(distributedlog.__file__)))
    paths = [package_parent, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def node_settings(
    directory: str, manifest: Manifest, node: DevNode, overrides: dict[str, str]
) -> dict[str, str]:
    voters = ",".join(f"{each.id}@{LOOPBACK}:{each.control}" for each in manifest.nodes)
    ours = {
        "node.id": str(node.id),
        "process.roles": "broker,controller",
        "cluster.id": manifest.cluster_id,
        "log.dirs": node.data_dir(directory),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{node.client}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{node.client}",
        "control.listener": f"{LOOPBACK}:{node.control}",
        "ops.listener": f"{LOOPBACK}:{node.ops}",
        "controller.quorum.voters": voters,
        "cluster.secret.file": os.path.join(directory, SECRET_FILE),
    }
    if RACK in overrides:
        racks = overrides[RACK].split(",")
        ours[RACK] = racks[(node.id - 1) % len(racks)].strip()
    if PROXIED in overrides:
        ports = overrides[PROXIED].split(",")[node.id - 1 : node.id] or [""]
        told, _, listened = ports[0].partition(":")
        ours["listeners"] += f",PROXIED://{LOOPBACK}:{listened}"
        ours["advertised.listeners"] += f",PROXIED://{LOOPBACK}:{told}"
    return {name: text for name, text in (overrides | ours).items() if name != PROXIED}


def _arguments(
    directory: str, manifest: Manifest, node: DevNode, overrides: dict[str, str]
) -> tuple[str, ...]:
    settings = node_settings(directory, manifest, node, overrides)
    return tuple(part for name, text in settings.items() for part in ("--set", f"{name}={text}"))


def _start_arguments(
    directory: str, manifest: Manifest, node: DevNode, overrides: dict[str, str]
) -> tuple[str, ...]:
    arguments = _arguments(directory, manifest, node, overrides)
    return arguments if manifest.formatted else ("--new-cluster", *arguments)


def _check_settings(directory: str, manifest: Manifest, overrides: dict[str, str]) -> float:
    """Raises here, in one line, for what every child would say in its log; returns the drain timeout."""
    if "," in directory:
        raise click.UsageError(f"--data-dir {directory}: a comma cannot be in its name")
    from distributedlog.settings.loading import load_settings

    nodes = [
        load_settings(None, node_settings(directory, manifest, node, overrides), os.environ)
        for node in manifest.nodes
    ]
    return nodes[0].drain_timeout_ms / 1000


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles Ctrl-C, SIGTERM and the end of the terminal meanwhile."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends at once, as long as there is nothing to stop; what is temporary is removed."""
    raise click.exceptions.Exit(0)


# --- what is told ------------------------------------------------------------------------------


class _Reporter:
    """Tells people on stderr, in colour on a terminal, and programs in the ready file."""

    def __init__(
        self,
        directory: str,
        ready_file: str | None,
        gateway: str | None,
        manifest: Manifest,
        *,
        is_kept: bool,
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._manifest = manifest
        self._ready_file = os.path.abspath(ready_file) if ready_file else None
        self._is_kept = is_kept
        self._has_greeted = False

    def forget_old_report(self) -> None:
        """Removes the report of another run: who waits for the file must not take it for ours."""
        from distributedlog.broker.ready import remove_old_report

        if self._ready_file is not None:
            remove_old_report(self._ready_file)

    def started(self, node_id: int, pid: int) -> None:
        name = f"node {node_id}" if node_id else "the gateway"
        self._say(f"{name} starts, pid {pid}", dim=True)

    def ready(self, node_id: int, report: Report) -> None:
        self._say(f"node {node_id} serves on {report.get('client')}", fg="green")

    def companion_ready(self, report: Report) -> None:
        self._say(f"the gateway serves on {report.get('gateway')}", fg="green")

    def all_ready(self, reports: Sequence[Report]) -> None:
        bootstrap = ",".join(str(report.get("client")) for report in reports)
        if not self._manifest.formatted:
            self._manifest = replace(self._manifest, formatted=True)
            save_manifest(self._directory, self._manifest)
        if self._ready_file is not None:
            self._write_ready_file(bootstrap, reports)
        if not self._has_greeted:
            self._has_greeted = True
            self._greet(bootstrap, reports)

    def died(self, death: Death) -> None:
        after = (
            "it is left down" if death.restart_seconds is None else f"again in {death.restart_seconds:g} s"
        )
        name = f"node {death.node_id}" if death.node_id else "the gateway"
        self._say(f"{name} {death.how}; {after}; its last lines:", fg="red")
        for line in death.log_lines or ("(it wrote nothing)",):
            self._say(f"    {line}")
        if death.lost is not None:
            self._say(f"node {death.node_id} is not started again: {death.lost}", fg="red", bold=True)

    def stopping(self, is_hurried: bool) -> None:
        self._say("killing what is left" if is_hurried else "stopping; Ctrl-C again to hurry", fg="yellow")

    def _write_ready_file(self, bootstrap: str, reports: Sequence[Report]) -> None:
        assert self._ready_file is not None
        facts = {
            "bootstrap": bootstrap,
            "console": None,
            "gateway": self._gateway,
            "brokers": [dict(report) for report in reports],
        }
        from distributedlog.broker.ready import write_file_atomically

        try:
            write_file_atomically(self._ready_file, json.dumps(facts) + "\n")
        except OSError as error:
            self._say(f"{self._ready_file} cannot be written: {error.strerror}", fg="red")

    def _greet(self, bootstrap: str, reports: Sequence[Report]) -> None:
        kept = "kept in" if self._is_kept else "gone at the end, until then in"
        self._say("")
        self._say(f"{len(reports)} of {len(reports)} brokers serve", bold=True)
        self._say(f"  bootstrap   {bootstrap}")
        self._say(f"  metrics     http://{reports[0].get('ops')}/metrics")
        self._say(f"  data, logs  {kept} {self._directory}")
        self._say("")
        self._say("Try:", bold=True)
        first = reports[0].get("client")
        where = "" if first == f"{LOOPBACK}:{PORT_DEFAULT}" else f" --bootstrap {first}"
        self._say(f"  dlog topic create greetings -p 3{where}")
        self._say(f"  echo hello | dlog topic produce greetings{where}")
        self._say(f"  dlog topic consume greetings --from beginning -e{where}")
        self._say("Ctrl-C stops it.")

    @staticmethod
    def _say(line: str, **style: object) -> None:
        with contextlib.suppress(OSError):  # whoever read it left; the cluster is still wanted
            click.secho(line, err=True, **style)  # type: ignore[arg-type]
