"""Whose directory it is: when one is made, when it is refused; a voter's is never made by mistake."""

import pytest

from distributedlog.data_directory.identity import (
    Identity,
    add_secret,
    check_still_there,
    format_directory,
    founding_incarnation,
    load_identity,
)
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.cluster_secret import parse_secrets
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InconsistentClusterIdError,
    LogDirectoryFailedError,
    StorageError,
)
from distributedlog.model.ids import Uuid
from distributedlog.ports.clock import SystemClock
from distributedlog.settings.loading import load_settings
from distributedlog.settings.node_settings import NodeSettings
from distributedlog.settings.secret_file import new_secret
from distributedlog.storage.checkpoints import encode_clean_shutdown
from distributedlog.storage.files import Files
from tests.simulation.clock import SeededRandomness
from tests.simulation.disk import PowerCut, SimDisk

DATA = "/data"
THREE = "1@127.0.0.1:9093,2@127.0.0.1:9193,3@127.0.0.1:9293"


def _settings(**given: str) -> NodeSettings:
    return load_settings(None, {"log.dirs": DATA, **{k.replace("_", "."): v for k, v in given.items()}}, {})


def _load(disk: SimDisk, settings: NodeSettings) -> Identity:
    return load_identity(Files(disk), settings, clock=SystemClock(), randomness=SeededRandomness(7))


def _format(disk: SimDisk, settings: NodeSettings, cluster_id: str | None = None) -> str:
    randomness = SeededRandomness(8)
    return format_directory(
        Files(disk), settings, clock=SystemClock(), randomness=randomness, cluster_id=cluster_id
    )


def _is_voter_as_promised(disk: SimDisk) -> bool:
    return not LogRaftStorage(Files(disk), f"{DATA}/__cluster_metadata", SystemClock()).load().lost


def test_the_only_voter_makes_its_directory_itself_and_finds_it_again() -> None:
    disk = SimDisk(1)
    first = _load(disk, _settings())
    assert first.clean_epoch == -1
    assert _is_voter_as_promised(disk)
    disk.crash("drop")
    assert _load(disk, _settings()) == first


def test_the_only_voter_founds_a_cluster_that_has_a_name_only_when_told_that_it_is_new() -> None:
    """It may have got company since, and lost its disk: the others still know the cluster by that name."""
    disk, settings = SimDisk(1), _settings(cluster_id="c")
    with pytest.raises(ConfigError, match="dlog server format --no-initial-controllers"):
        _load(disk, settings)
    assert not disk.exists(f"{DATA}/meta.properties")
    clock, randomness = SystemClock(), SeededRandomness(7)
    made = load_identity(Files(disk), settings, clock=clock, randomness=randomness, is_new_cluster=True)
    assert made.cluster_id == "c"
    assert _load(disk, settings) == made
    several = _settings(controller_quorum_voters=THREE, cluster_id="c")
    with pytest.raises(ConfigError, match="dlog server format"):
        load_identity(Files(SimDisk(2)), several, clock=clock, randomness=randomness, is_new_cluster=True)


def test_who_joins_a_cluster_names_somebody_who_is_there() -> None:
    clock, randomness = SystemClock(), SeededRandomness(8)
    with pytest.raises(ConfigError, match="names nobody else"):
        format_directory(
            Files(SimDisk(1)), _settings(cluster_id="c"), clock=clock, randomness=randomness, is_joining=True
        )


def test_a_broker_that_does_not_vote_makes_its_directory_if_it_knows_its_cluster() -> None:
    disk = SimDisk(1)
    given = {"node_id": "9", "process_roles": "broker", "controller_quorum_voters": THREE}
    with pytest.raises(ConfigError, match=r"cluster\.id"):
        _load(disk, _settings(**given))
    with pytest.raises(ConfigError, match=r"needs the secret of its cluster: set cluster\.secret\.file"):
        _load(disk, _settings(**given, cluster_id="c"))
    given["cluster_secret_file"] = "/etc/dlog/secret"
    assert _load(disk, _settings(**given, cluster_id="c")).cluster_id == "c"
    assert not disk.exists(f"{DATA}/__cluster_metadata")


def test_one_of_several_voters_is_never_made_by_starting_it() -> None:
    disk = SimDisk(1)
    settings = _settings(controller_quorum_voters=THREE, cluster_id="c")
    with pytest.raises(ConfigError, match="dlog server format"):
        _load(disk, settings)
    assert not disk.exists(f"{DATA}/meta.properties")
    assert _format(disk, settings) == "c"
    assert _load(disk, settings).cluster_id == "c"
    assert _is_voter_as_promised(disk)


def _incarnation(disk: SimDisk) -> int:
    storage = LogRaftStorage(Files(disk), f"{DATA}/__cluster_metadata", SystemClock())
    return storage.load().recovered.hard_state.incarnation


def test_a_founder_alone_votes_by_its_directory_so_that_a_new_disk_is_another_voter() -> None:
    disk = SimDisk(1)
    identity = _load(disk, _settings())
    assert _incarnation(disk) == founding_incarnation(identity.directory_id) > 0
    assert founding_incarnation(Uuid(bytes(15) + b"\1")) != founding_incarnation(Uuid(bytes(15) + b"\2"))
    several = SimDisk(2)
    _format(several, _settings(controller_quorum_voters=THREE), "c")
    assert _incarnation(several) == 0


@pytest.mark.parametrize(("node_id", "is_joining"), [("9", False), ("2", True)])
def test_one_that_joins_is_no_voter_whatever_its_settings_say(node_id: str, is_joining: bool) -> None:
    disk = SimDisk(1)
    given = {"node_id": node_id, "controller_quorum_voters": THREE, "cluster_secret_file": "/secret"}
    settings = _settings(**given, cluster_id="c")
    format_directory(
        Files(disk), settings, clock=SystemClock(), randomness=SeededRandomness(8), is_joining=is_joining
    )
    assert not _is_voter_as_promised(disk)
    assert _load(disk, settings).cluster_id == "c"


def test_a_standby_makes_its_directory_itself_but_no_secret() -> None:
    given = {"node_id": "9", "controller_quorum_voters": THREE, "cluster_id": "c"}
    with pytest.raises(ConfigError, match="needs the secret of its cluster"):
        _load(SimDisk(1), _settings(**given))
    disk = SimDisk(1)
    assert _load(disk, _settings(**given, cluster_secret_file="/secret")).cluster_id == "c"
    assert not _is_voter_as_promised(disk)


def test_a_directory_that_is_a_nodes_already_is_not_formatted_again() -> None:
    disk = SimDisk(1)
    settings = _settings(controller_quorum_voters=THREE)
    _format(disk, settings, "c")
    with pytest.raises(StorageError, match="already"):
        _format(disk, settings, "c")


def test_nodes_of_one_cluster_must_agree_on_its_id() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.id"):
        _format(SimDisk(1), _settings(controller_quorum_voters=THREE))


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    disk = SimDisk(1)
    _format(disk, _settings(cluster_id="ours"))
    with pytest.raises(InconsistentClusterIdError, match="theirs"):
        _load(disk, _settings(cluster_id="theirs"))
    with pytest.raises(ConfigError, match="node 1"):
        _load(disk, _settings(node_id="2"))


def test_a_clean_stop_is_known_by_its_epoch() -> None:
    disk = SimDisk(1)
    _load(disk, _settings())
    Files(disk).write_atomically(f"{DATA}/.kafka_cleanshutdown", encode_clean_shutdown(17))
    assert _load(disk, _settings()).clean_epoch == 17


def test_a_power_cut_while_it_is_made_leaves_one_that_can_be_made_again() -> None:
    """Wherever the power fails: the next start makes a whole directory, and a voter that may vote."""
    settings = _settings()
    for operation in range(1, 200):
        disk = SimDisk(operation)
        disk.fail_after(operation)
        try:
            _load(disk, settings)
            disk.crash("drop")
            assert operation > 5, "the cut must have struck"
            return
        except PowerCut:
            disk.crash("drop")
        except DlogError as error:
            pytest.fail(f"cut at {operation}: {error}")
        _load(disk, settings)
        assert _is_voter_as_promised(disk), f"cut at operation {operation}"
    pytest.fail("the cut never struck")


# --- what is not ours to begin with ------------------------------------------------------------


def _put(disk: SimDisk, path: str, data: bytes = b"") -> None:
    Files(disk).make_directory(path.rpartition("/")[0])
    Files(disk).write_atomically(path, data)


def test_a_directory_with_logs_and_without_an_owner_is_not_made_a_new_nodes() -> None:
    disk = SimDisk(1)
    _put(disk, f"{DATA}/orders-0/{0:020d}.log", b"precious")
    before = disk.files()
    with pytest.raises(StorageError, match=r"holds logs \(orders-0\), which a new node would delete"):
        _load(disk, _settings())
    assert {path: data for path, data in disk.files().items() if path in before} == before
    assert not disk.exists(f"{DATA}/meta.properties")


def test_kafkas_directory_is_no_nodes_until_it_is_adopted() -> None:
    disk = SimDisk(1)
    _put(disk, f"{DATA}/meta.properties", b"version=1\ncluster.id=c\nnode.id=1\n")
    _put(disk, f"{DATA}/__cluster_metadata-0/{0:020d}.log")
    with pytest.raises(StorageError, match="dlog cluster adopt /data"):
        _load(disk, _settings())


def test_a_half_adopted_directory_is_no_nodes() -> None:
    disk = SimDisk(1)
    _put(disk, f"{DATA}/adoption-unfinished")
    for attempt in (_load, _format):
        with pytest.raises(StorageError, match="is half adopted"):
            attempt(disk, _settings())


# --- the cluster's secret ----------------------------------------------------------------------

SECRET_PATH = f"{DATA}/__cluster_metadata/cluster.secret"


def _text(disk: SimDisk, path: str) -> str:
    data = Files(disk).read_small(path)
    assert data is not None
    return data.decode()


def test_the_first_node_makes_the_secret_and_keeps_it() -> None:
    disk = SimDisk(1)
    _load(disk, _settings())
    text = _text(disk, SECRET_PATH)
    assert len(parse_secrets(text, SECRET_PATH).proving) == 32
    disk.crash("drop")
    _load(disk, _settings())
    assert _text(disk, SECRET_PATH) == text


def test_no_two_clusters_have_the_same() -> None:
    disks = SimDisk(1), SimDisk(1)
    for disk in disks:
        _load(disk, _settings())
    assert len({_text(disk, SECRET_PATH) for disk in disks}) == 2


def test_a_further_node_is_given_the_first_ones() -> None:
    disk, text = SimDisk(1), new_secret()
    settings = _settings(controller_quorum_voters=THREE, cluster_id="c")
    format_directory(Files(disk), settings, clock=SystemClock(), randomness=SeededRandomness(8), secret=text)
    assert _text(disk, SECRET_PATH) == text
    assert _is_voter_as_promised(disk)


def test_where_the_settings_name_a_file_none_is_made() -> None:
    disk = SimDisk(1)
    _load(disk, _settings(cluster_secret_file="/etc/dlog/secret"))
    assert not disk.exists(SECRET_PATH)


def test_a_directory_of_before_there_were_secrets_says_what_to_do_and_is_given_one() -> None:
    disk = SimDisk(1)
    settings = _settings(controller_quorum_voters=THREE, cluster_id="c")
    _format(disk, settings)
    disk.remove(SECRET_PATH)
    with pytest.raises(ConfigError, match=r"has no cluster secret: make one .* `dlog server format"):
        _load(disk, settings)
    assert add_secret(Files(disk), settings, None)
    text = _text(disk, SECRET_PATH)
    assert not add_secret(Files(disk), settings, new_secret()), "what is there stays"
    assert _text(disk, SECRET_PATH) == text
    assert _load(disk, settings).cluster_id == "c"
    assert _is_voter_as_promised(disk)


def test_a_directory_that_is_removed_or_replaced_is_noticed_and_a_failing_disk_is_not_taken_for_it() -> None:
    disk, settings = SimDisk(1), _settings()
    identity = _load(disk, settings)
    check_still_there(Files(disk), settings, identity)
    disk.inject("open", "*/meta.properties")
    check_still_there(Files(disk), settings, identity)
    disk.heal()
    with pytest.raises(LogDirectoryFailedError, match="is gone, or was replaced"):
        check_still_there(Files(disk), settings, identity._replace(directory_id=Uuid(b"another one here")))
    disk.remove(f"{DATA}/meta.properties")
    with pytest.raises(LogDirectoryFailedError, match="is gone, or was replaced"):
        check_still_there(Files(disk), settings, identity)
