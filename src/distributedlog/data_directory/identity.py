"""Whose data directory this is, and when a new one may be made.

    meta.properties         cluster id, node id, directory id: Kafka's file
    __cluster_metadata/     the Raft state and log, of a node that votes
        cluster.secret      what the nodes of a cluster prove with that they are, unless settings name it

A voter has promised things (its vote, its entries).  One that comes back with an empty directory must not
vote as if it had promised nothing, so an empty directory is made into a voter's only when somebody says so:
`dlog server format`.  One that joins a cluster (it is not among the voters of its settings, or it is
formatted so) has no Raft state: it is of an incarnation of its own (`raft/membership`), and no voter until it
is added.

The only voter has promised nothing to anybody else, and a node that does not vote has promised nothing at
all: for these two a directory is made when they first start.  But the only voter of its settings may have
been given others since, and lost its disk.

    its settings name no cluster    it founds a new one, with an id that nobody mistakes for another
    they name one (`cluster.id`)    somebody has to say that it is new: `dlog server format`, --new-cluster

Else it would found the cluster once more, empty, under the id by which nodes and clients know it.  Should it
be said by mistake, the incarnation that it founds with is its directory's: on a new disk it is not the voter
that the others mean.

A crash while a directory is made leaves one without meta.properties: it is made anew, by the same rule.

The first node that is formatted makes the cluster's secret; further ones are given it.  A directory that has
none, made before there were secrets, is given one by formatting it again, which leaves everything else.

A node deletes logs that its cluster knows nothing of.  So a directory that holds logs is never made into a
new node's, and one of Apache Kafka's, or half adopted, is no node's until `dlog cluster adopt` is done.
"""

import contextlib
from typing import NamedTuple

from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.errors import (
    ConfigError,
    InconsistentClusterIdError,
    InvalidNameError,
    LogDirectoryFailedError,
    StorageError,
)
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.clock import Clock
from distributedlog.ports.randomness import Randomness
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.settings.secret_file import new_secret
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    decode_clean_shutdown,
    decode_meta_properties,
    encode_meta_properties,
)
from distributedlog.storage.files import Files

NO_EPOCH = -1
INCARNATION_MAX = 2**63 - 1
UNFINISHED_ADOPTION_FILE = "adoption-unfinished"
KAFKA_METADATA_DIRECTORY = "__cluster_metadata-0"


class Identity(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: Uuid
    clean_epoch: int
    """The broker epoch in which it last stopped with everything on disk; -1 after any other stop."""


def founding_incarnation(directory_id: Uuid) -> int:
    """Returns the incarnation with which the only voter of a new cluster votes, by its data directory."""
    return int.from_bytes(directory_id.bytes16[-8:], "big") % INCARNATION_MAX + 1


def format_directory(
    files: Files,
    settings: NodeSettings,
    *,
    clock: Clock,
    randomness: Randomness,
    cluster_id: str | None = None,
    secret: str | None = None,
    is_joining: bool = False,
) -> str:
    """Makes a new node's directory; the cluster's id.  One that belongs to a node already is refused.

    `secret` is the text of the cluster's file of secrets; None: this is the first node, and makes it.
    `is_joining`: the node is none of the first voters, whatever the settings say; it may be added to them.
    """
    directory = settings.data_dir
    if not files.is_directory(directory):
        files.make_directory(directory)
    lock = files.lock(f"{directory}/{LOCK_FILE}")
    try:
        if files.exists(f"{directory}/{META_PROPERTIES_FILE}"):
            raise StorageError(f"{directory} belongs to a node already: it is left as it is")
        _check_not_adopted_half(files, directory)
        _check_holds_no_logs(files, directory)
        chosen = cluster_id or settings.cluster_id
        if chosen is None and not _is_only_voter(settings):
            raise ConfigError(
                "the nodes of a cluster must agree on its id: set cluster.id, or give it to"
                " `dlog server format --cluster-id`"
            )
        if is_joining and _is_only_voter(settings):
            raise ConfigError(
                f"node {settings.node_id} joins a cluster, but controller.quorum.voters names nobody else: "
                "name the voters that are there"
            )
        identity = chosen or str(randomness.new_uuid())
        directory_id = randomness.new_uuid()
        is_founding = settings.is_controller and not settings.is_standby and not is_joining
        if is_founding:
            founding = founding_incarnation(directory_id) if _is_only_voter(settings) else 0
            LogRaftStorage(files, settings.metadata_dir, clock).format(founding)
        add_secret(files, settings, secret, is_founding=is_founding)
        meta = MetaProperties(identity, settings.node_id, directory_id)
        files.write_atomically(f"{directory}/{META_PROPERTIES_FILE}", encode_meta_properties(meta))
    finally:
        lock.release()
    return identity


def add_secret(
    files: Files, settings: NodeSettings, secret: str | None, *, is_founding: bool | None = None
) -> bool:
    """Returns whether a secret was put into the directory: none is if the settings name a file, or it has
    one."""
    if settings.secret_file is not None or files.exists(settings.secret_path):
        return False
    if is_founding is None:
        is_founding = settings.is_controller and not settings.is_standby
    if secret is None and not is_founding:
        raise ConfigError(
            f"node {settings.node_id} needs the secret of its cluster: set cluster.secret.file, or give a "
            "copy of the first node's with `dlog server format --secret-file`"
        )
    if not files.is_directory(settings.metadata_dir):
        files.make_directory(settings.metadata_dir)
    files.write_atomically(settings.secret_path, (secret or new_secret()).encode("ascii"))
    return True


def load_identity(
    files: Files,
    settings: NodeSettings,
    *,
    clock: Clock,
    randomness: Randomness,
    needs_secret: bool = True,
    is_new_cluster: bool = False,
) -> Identity:
    """Returns who this node is, by its directory; makes one where the rule above allows it.
    `is_new_cluster`: somebody has said that the cluster of the settings is not there yet."""
    directory = settings.data_dir
    path = f"{directory}/{META_PROPERTIES_FILE}"
    data = files.read_small(path) if files.is_directory(directory) else None
    _check_not_adopted_half(files, directory)
    if data is None:
        if not _may_be_made(settings, is_new_cluster=is_new_cluster):
            raise ConfigError(
                f"{directory} is not a node's directory: a new voter's is made with `dlog server format`; "
                "that of a voter that lost its disk with `dlog server format --no-initial-controllers`, and "
                "the other voters in controller.quorum.voters, after which it is removed from the voters and "
                "added again (`dlog cluster voters`)"
            )
        format_directory(files, settings, clock=clock, randomness=randomness)
        data = files.read_small(path)
        assert data is not None
    meta = decode_meta_properties(data, path)
    _check(meta, settings, path)
    if files.is_directory(f"{directory}/{KAFKA_METADATA_DIRECTORY}"):
        raise StorageError(
            f"{directory} is a directory of Apache Kafka's: `dlog cluster adopt {directory}` says what of it "
            "can be taken over, and takes it over"
        )
    if needs_secret and settings.secret_file is None and not files.exists(settings.secret_path):
        raise ConfigError(
            f"{directory} has no cluster secret: make one on the first node with `dlog server format "
            "--ignore-formatted` and its settings, on the others with `--secret-file` and a copy of it"
        )
    assert meta.cluster_id is not None
    directory_id = meta.directory_id
    if directory_id is None:  # older versions of Kafka gave directories none
        directory_id = randomness.new_uuid()
        files.write_atomically(
            path, encode_meta_properties(MetaProperties(meta.cluster_id, settings.node_id, directory_id))
        )
    return Identity(meta.cluster_id, settings.node_id, directory_id, _clean_epoch(files, directory))


def check_still_there(files: Files, settings: NodeSettings, identity: Identity) -> None:
    """Raises if the directory is gone, or another's: a node that goes on would write where nobody reads."""
    path = f"{settings.data_dir}/{META_PROPERTIES_FILE}"
    try:
        data = files.read_small(path)
    except StorageError:
        return  # what is wrong with the disk is found by whoever writes to it
    if data is None or decode_meta_properties(data, path).directory_id != identity.directory_id:
        raise LogDirectoryFailedError(
            f"{settings.data_dir} is gone, or was replaced, while the node ran: bring it back from a copy"
        )


def _check_not_adopted_half(files: Files, directory: str) -> None:
    if files.exists(f"{directory}/{UNFINISHED_ADOPTION_FILE}"):
        raise StorageError(
            f"{directory} is half adopted: run the same `dlog cluster adopt` once more, and it goes on"
        )


def _check_holds_no_logs(files: Files, directory: str) -> None:
    for name in files.names(directory):
        with contextlib.suppress(InvalidNameError):
            TopicPartition.from_directory_name(name)
            if files.is_directory(f"{directory}/{name}"):
                raise StorageError(
                    f"{directory} has no {META_PROPERTIES_FILE}, but holds logs ({name}), which a new node "
                    f"would delete: bring back its {META_PROPERTIES_FILE}, or name an empty directory"
                )


def _check(meta: MetaProperties, settings: NodeSettings, path: str) -> None:
    if meta.cluster_id is None:
        raise ConfigError(f"{path} names no cluster")
    if settings.cluster_id is not None and settings.cluster_id != meta.cluster_id:
        raise InconsistentClusterIdError(
            f"{path} is of the cluster {meta.cluster_id}, the settings are of {settings.cluster_id}"
        )
    if meta.node_id is not None and meta.node_id != settings.node_id:
        raise ConfigError(f"{path} is of node {meta.node_id}, the settings are of node {settings.node_id}")


def _clean_epoch(files: Files, directory: str) -> int:
    data = files.read_small(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
    epoch = None if data is None else decode_clean_shutdown(data)
    return NO_EPOCH if epoch is None else epoch


def _may_be_made(settings: NodeSettings, *, is_new_cluster: bool) -> bool:
    """Returns whether an empty directory becomes this node's when it starts."""
    if not settings.is_controller or settings.is_standby:
        return True
    return _is_only_voter(settings) and (settings.cluster_id is None or is_new_cluster)


def _is_only_voter(settings: NodeSettings) -> bool:
    voters = {voter.node_id for voter in settings.controller_quorum_voters}
    return settings.is_controller and voters == {settings.node_id}
