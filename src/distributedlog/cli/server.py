"""`dlog server`: one node of a cluster, from its settings; and the making of its directory.

`start` runs until SIGTERM or Ctrl-C, and then hands over what it leads, finishes what was begun, and returns
0.  Whoever started it learns that it serves by its ready report: in a file, or on a descriptor that it
inherited, which needs no polling.
"""

import gc
import os

import click

from distributedlog.cli.exit_codes import EXISTING_FILE
from distributedlog.cli.key_values import parse_overrides, set_option

HELP = """\
Run one node of a cluster, or make its directory.

The settings are Kafka's names in a TOML file; each is overridden by DLOG_… in the environment (DLOG_NODE_ID
for node.id) and by --set.  Several nodes on this machine for trying things out: see dlog dev.

\b
dlog server start --config node1.toml
"""

config_option = click.option(
    "--config",
    "config_path",
    type=EXISTING_FILE,
    metavar="FILE",
    help="The node's settings, in TOML; docs/configuration.md has them all.",
)


@click.group(name="server", help=HELP)
def group() -> None:
    pass


@group.command(short_help="Run one node until it is stopped.")
@config_option
@set_option
@click.option(
    "--ready-file", type=click.Path(dir_okay=False), metavar="F", help="Written once the node serves: JSON."
)
@click.option(
    "--ready-fd",
    type=click.IntRange(min=3),
    metavar="N",
    help="The same, to a descriptor that was inherited, which is then closed.",
)
@click.option("--insecure", is_flag=True, help="Allow addresses that other machines can reach.")
@click.option(
    "--new-cluster",
    "is_new_cluster",
    is_flag=True,
    help="The cluster of cluster.id is not there yet: its only voter makes its own directory.",
)
def start(
    config_path: str | None,
    settings: tuple[str, ...],
    ready_file: str | None,
    ready_fd: int | None,
    insecure: bool,
    is_new_cluster: bool,
) -> int:
    """Run one node until SIGTERM or Ctrl-C.

    \b
    dlog server start --config node1.toml
    dlog server start --set node.id=1 --set log.dirs=data --set listeners=PLAINTEXT://127.0.0.1:9092
    """
    overrides = parse_overrides(settings)
    if insecure:
        overrides["insecure"] = "true"
    if ready_fd is not None:
        _check_descriptor(ready_fd)
    gc.disable()  # a fifth of the time to be ready was collecting what is imported; the node turns it on
    try:
        return _run(config_path, overrides, ready_file, ready_fd, is_new_cluster)
    finally:
        gc.enable()


def _run(
    config_path: str | None,
    overrides: dict[str, str],
    ready_file: str | None,
    ready_fd: int | None,
    is_new_cluster: bool,
) -> int:
    from distributedlog.settings.loading import load_settings

    node = load_settings(config_path, overrides, os.environ)
    from distributedlog.broker.logging_setup import configure_logging
    from distributedlog.broker.node import run_node
    from distributedlog.broker.ready import (
        ReadyReport,
        remove_old_report,
        write_file_atomically,
        write_to_descriptor,
    )

    if ready_file is not None:
        remove_old_report(ready_file)
    configure_logging(node_id=node.node_id, log_format=node.log_format, log_level=node.log_level)

    def report_ready(report: ReadyReport) -> None:
        line = report.to_json() + "\n"
        if ready_file is not None:
            write_file_atomically(ready_file, line)
        if ready_fd is not None:
            write_to_descriptor(ready_fd, line)

    return run_node(node, on_ready=report_ready, is_new_cluster=is_new_cluster)


def _check_descriptor(descriptor: int) -> None:
    try:
        os.set_inheritable(descriptor, False)  # a worker that holds it would keep its reader waiting
    except OSError:
        raise click.UsageError(f"--ready-fd {descriptor}: no such descriptor was inherited") from None


@group.command(name="format", short_help="Make a node's directory.")
@config_option
@set_option
@click.option("--cluster-id", metavar="ID", help="Of the cluster; all its nodes need the same.")
@click.option(
    "--secret-file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="A copy of the first node's cluster secret; without it a new one is made.",
)
@click.option(
    "--ignore-formatted",
    is_flag=True,
    help="A directory that is this node's already is left so; it is only given a secret if it has none.",
)
@click.option(
    "--no-initial-controllers",
    "is_joining",
    is_flag=True,
    help="The node joins a cluster, to be added to its voters, whatever the settings say of it.",
)
def format_command(
    config_path: str | None,
    settings: tuple[str, ...],
    cluster_id: str | None,
    secret_file: str | None,
    ignore_formatted: bool,
    is_joining: bool,
) -> int:
    """Make a node's directory, once, before its first start.

    A node that does not vote does it by itself, and so does the only voter of a cluster without a name
    (cluster.id), or with dlog server start --new-cluster.  A voter among others must not: if it has lost its
    disk, it would vote again as if it had never voted.  In its place a node is formatted with
    --no-initial-controllers, removed from the voters, and added again: see dlog cluster voters.

    The nodes of a cluster need the same secret.  The first one makes it; copy its file to the others and name
    it there, or keep one file and name it in each node's cluster.secret.file.

    \b
    dlog server format --config node1.toml --cluster-id nUCSzRR8R4mFbbQEpWyHPw
    dlog server format --config node2.toml --cluster-id nUCSzRR8R4mFbbQEpWyHPw --secret-file cluster.secret
    """
    from distributedlog.settings.loading import load_settings

    overrides = parse_overrides(settings)
    overrides.setdefault("insecure", "true")  # nothing is listened on here
    if cluster_id is not None:
        overrides["cluster.id"] = cluster_id
    node = load_settings(config_path, overrides, os.environ)
    from distributedlog.data_directory.identity import add_secret, format_directory, load_identity
    from distributedlog.ports.clock import SystemClock
    from distributedlog.ports.disk import SystemDisk
    from distributedlog.ports.randomness import SystemRandomness
    from distributedlog.settings.secret_file import read_secrets
    from distributedlog.storage.checkpoints import META_PROPERTIES_FILE
    from distributedlog.storage.files import Files

    if secret_file is not None and node.secret_file is not None:
        raise click.UsageError("--secret-file: cluster.secret.file names one already")
    secret = None if secret_file is None else read_secrets(secret_file)[0]
    files, clock, randomness = Files(SystemDisk()), SystemClock(), SystemRandomness()
    if ignore_formatted and files.exists(f"{node.data_dir}/{META_PROPERTIES_FILE}"):
        identity = load_identity(files, node, clock=clock, randomness=randomness, needs_secret=False)
        add_secret(files, node, secret)
        state, cluster = "already", identity.cluster_id
    else:
        state = "now"
        cluster = format_directory(
            files, node, clock=clock, randomness=randomness, secret=secret, is_joining=is_joining
        )
    click.echo(f"{node.data_dir} is {state} node {node.node_id}'s of cluster {cluster}", err=True)
    click.echo(f"the cluster's secret is in {node.secret_path}: the other nodes need the same", err=True)
    return 0
