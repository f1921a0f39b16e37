"""`dlog dev` without brokers: its manifest, its ports, and what it refuses.  With brokers: tests/system."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.cli.dev import node_settings
from distributedlog.cli.dev_manifest import (
    MANIFEST_FILE,
    DevNode,
    Manifest,
    load_manifest,
    lock_directory,
    new_cluster_id,
    save_manifest,
    settle_manifest,
)
from distributedlog.cli.ports import FREE_PORTS, PortInUseError, PortReservations
from distributedlog.model.errors import ConfigError, CorruptLogError, DirectoryLockedError
from distributedlog.model.ids import Uuid
from distributedlog.settings.loading import load_settings
from tests.unit.cli.conftest import Dlog

MANIFEST = Manifest(
    "nUCSzRR8R4mFbbQEpWyHPw", (DevNode(1, 9092, 20001, 20003), DevNode(2, 9093, 20004, 20006)), 20002
)


@pytest.fixture
def reservations() -> Iterator[PortReservations]:
    with PortReservations() as held:
        yield held


def listening(port: int = 0) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


# --- ports -------------------------------------------------------------------------------------


def test_free_ports_are_all_different_and_are_not_those_of_outgoing_connections(
    reservations: PortReservations,
) -> None:
    ports = [reservations.reserve_free() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(port in FREE_PORTS for port in ports)


def test_a_reserved_port_can_be_listened_on_by_who_it_is_for_and_is_free_for_nobody_else(
    reservations: PortReservations,
) -> None:
    port = reservations.reserve_free()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with listening(port) as server, socket.create_connection(("127.0.0.1", port)):
        server.accept()[0].close()


def test_a_port_on_which_another_listens_is_refused_in_one_line(reservations: PortReservations) -> None:
    with listening() as server:
        port = server.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"port {port} for clients is in use.*; use --port"):
            reservations.reserve(port, "clients", "use --port")


def test_a_port_is_not_given_for_two_purposes(reservations: PortReservations) -> None:
    port = reservations.reserve_free()
    with pytest.raises(PortInUseError, match="used twice"):
        reservations.reserve(port, "the ops plane", "change it")


# --- the manifest ------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert load_manifest(str(tmp_path)) is None
    save_manifest(str(tmp_path), MANIFEST)
    assert load_manifest(str(tmp_path)) == MANIFEST
    assert os.listdir(tmp_path) == [MANIFEST_FILE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        MANIFEST.to_json().replace("9092", "99999"),
        MANIFEST.to_json().replace("9092", "true"),
        MANIFEST.to_json().replace("9092", '"9092"'),
        json.dumps({"version": 1, "cluster_id": "x", "formatted": True, "nodes": []}),
    ],
)
def test_a_damaged_manifest_is_refused_and_never_made_anew(
    tmp_path: Path, reservations: PortReservations, text: str
) -> None:
    (tmp_path / MANIFEST_FILE).write_text(text)
    with pytest.raises(CorruptLogError, match=r"dev\.json"):
        settle_manifest(str(tmp_path), None, None, reservations)
    assert (tmp_path / MANIFEST_FILE).read_text() == text


def test_a_new_cluster_has_the_ports_asked_for_and_others_that_are_free(
    tmp_path: Path, reservations: PortReservations
) -> None:
    first = next(port for port in range(14_000, 15_000) if _all_free(port, 3))
    manifest = settle_manifest(str(tmp_path), 3, first, reservations)
    assert [node.id for node in manifest.nodes] == [1, 2, 3]
    assert [node.client for node in manifest.nodes] == [first, first + 1, first + 2]
    others = [port for node in manifest.nodes for port in (node.control, node.ops)]
    assert len({*others, manifest.gateway}) == 7
    assert not manifest.formatted


def _all_free(first: int, count: int) -> bool:
    try:
        with PortReservations() as probe:
            for port in range(first, first + count):
                probe.reserve(port, "a test", "")
    except PortInUseError:
        return False
    return True


def test_ports_and_ids_stay_when_it_is_started_again(tmp_path: Path) -> None:
    with PortReservations() as held:
        made = settle_manifest(str(tmp_path), 2, 0, held)
        save_manifest(str(tmp_path), made)
    for port in (None, 0):
        with PortReservations() as held:
            assert settle_manifest(str(tmp_path), None, port, held) == made


def test_clients_ports_can_be_moved(tmp_path: Path) -> None:
    with PortReservations() as held:
        save_manifest(str(tmp_path), settle_manifest(str(tmp_path), 1, 0, held))
        free = held.reserve_free()
    with PortReservations() as held:
        assert settle_manifest(str(tmp_path), None, free, held).nodes[0].client == free


def test_another_number_of_brokers_is_refused(tmp_path: Path, reservations: PortReservations) -> None:
    save_manifest(str(tmp_path), MANIFEST)
    with pytest.raises(ConfigError, match="a cluster of 2, not of 3"):
        settle_manifest(str(tmp_path), 3, None, reservations)


def test_a_kept_port_that_another_has_is_named_with_what_it_is_for(
    tmp_path: Path, reservations: PortReservations
) -> None:
    with PortReservations() as held:
        made = settle_manifest(str(tmp_path), 2, 0, held)
        save_manifest(str(tmp_path), made)
    with listening(made.nodes[1].ops), pytest.raises(PortInUseError, match="the ops plane of node 2"):
        settle_manifest(str(tmp_path), None, None, reservations)


def test_directories_of_nodes_without_a_manifest_are_not_taken_for_new_ones(
    tmp_path: Path, reservations: PortReservations
) -> None:
    (tmp_path / "node-1").mkdir()
    with pytest.raises(ConfigError, match=r"node-1 but no dev\.json"):
        settle_manifest(str(tmp_path), 1, 0, reservations)


def test_only_one_at_a_time_runs_on_a_directory(tmp_path: Path) -> None:
    held = lock_directory(str(tmp_path / "new"))
    with pytest.raises(DirectoryLockedError, match="another dlog dev"):
        lock_directory(str(tmp_path / "new"))
    os.close(held)
    os.close(lock_directory(str(tmp_path / "new")))


def test_a_cluster_id_is_one_that_kafka_could_have_made() -> None:
    ids = {new_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(str(Uuid.parse(each)) == each and not each.startswith("-") for each in ids)


# --- the nodes ---------------------------------------------------------------------------------


def test_racks_are_given_to_the_nodes_in_turn(tmp_path: Path) -> None:
    for racks, expected in (("a, b,c", ["a", "b"]), ("here", ["here", "here"])):
        settings = [
            node_settings(str(tmp_path), MANIFEST, node, {"broker.rack": racks}) for node in MANIFEST.nodes
        ]
        assert [each["broker.rack"] for each in settings] == expected


def test_the_nodes_know_each_other_and_have_the_settings_that_were_given(tmp_path: Path) -> None:
    given = {"auto.create.topics.enable": "false", "num.partitions": "4"}
    nodes = [
        load_settings(None, node_settings(str(tmp_path), MANIFEST, node, given), {})
        for node in MANIFEST.nodes
    ]
    assert [node.node_id for node in nodes] == [1, 2]
    assert nodes[0].controller_quorum_voters == nodes[1].controller_quorum_voters
    assert [voter.port for voter in nodes[0].controller_quorum_voters] == [20001, 20004]
    assert nodes[1].control_listener.port == 20004
    assert nodes[1].data_dir == str(tmp_path / "node-2")
    assert not nodes[0].auto_create_topics
    assert nodes[0].num_partitions == 4
    assert {node.cluster_id for node in nodes} == {MANIFEST.cluster_id}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--brokers", "0"], 2, "--brokers"),
        (["--port", "70000"], 2, "--port"),
        (["--port", "65535", "--brokers", "2"], 2, "leaves no room for 2 brokers"),
        (["--set", "node.id=7"], 2, "dlog dev decides that itself"),
        (["--set", "num.partitions"], 2, "write KEY=VALUE"),
        (["--set", "num.partition=3"], 2, "did you mean 'num.partitions'"),
        (["--set", "num.partitions=none"], 2, "a whole number"),
    ],
)
def test_a_wrong_input_is_one_line_and_leaves_nothing_behind(
    dlog: Dlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outcome = dlog("dev", *(["--port", "0"] if "--port" not in arguments else []), *arguments)
    assert outcome.code == code
    assert outcome.err.startswith("dlog: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err
    assert os.listdir(tmp_path) == []


def test_a_port_in_use_is_one_line(dlog: Dlog) -> None:
    with listening() as server:
        port = server.getsockname()[1]
        outcome = dlog("dev", "--port", port)
    assert outcome.code == 3
    assert outcome.err == (
        f"dlog: port {port} for clients is in use by another program; "
        "stop it, or choose other ports with --port\n"
    )
