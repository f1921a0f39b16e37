"""Where controllers are: settings, registrations, and the file that is there before either can be asked."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.broker.cluster.quorum_addresses import (
    ADDRESSES_FILE,
    QuorumAddresses,
    decode_addresses,
    encode_addresses,
)
from distributedlog.controller.image import ControllerRegistration, MetadataImage
from distributedlog.controller.persistent_map import PersistentMap
from distributedlog.model.ids import Uuid
from distributedlog.settings.addresses import Voter
from distributedlog.storage.files import Files
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor

DIRECTORY = "/data/__cluster_metadata"


def image(**ports: int) -> MetadataImage:
    """Nodes `n1`, `n2` and so on, by the ports that they registered."""
    controllers: PersistentMap[int, ControllerRegistration] = PersistentMap()
    for name, port in ports.items():
        node_id = int(name[1:])
        registration = ControllerRegistration(node_id, Uuid(bytes(16)), 1, "h", port)
        controllers = controllers.set(node_id, registration)
    return MetadataImage(offset=1, cluster_id="c", controllers=controllers)


class Known:
    """What node 1 knows, on a disk that outlives it."""

    def __init__(self, disk: SimDisk, *configured: Voter) -> None:
        self.told: list[Mapping[int, tuple[str, int]]] = []
        self.executor = StepExecutor()
        self.addresses = QuorumAddresses(
            1, configured, Files(disk), DIRECTORY, self.executor, self.told.append
        )

    def take(self, image: MetadataImage) -> dict[int, tuple[str, int]]:
        self.addresses.take_image(image)
        while self.executor.run_one():
            pass
        return self.addresses.others


def test_what_registered_is_known_and_is_known_again_after_a_restart() -> None:
    disk = SimDisk(1)
    known = Known(disk, Voter(1, "h", 1))
    assert known.take(image(n1=1, n2=2)) == {2: ("h", 2)}
    assert known.take(image(n1=1, n2=2, n3=3)) == {2: ("h", 2), 3: ("h", 3)}
    assert known.told == [{2: ("h", 2)}, {2: ("h", 2), 3: ("h", 3)}]
    disk.crash("drop")
    assert Known(disk, Voter(1, "h", 1)).addresses.others == {2: ("h", 2), 3: ("h", 3)}


def test_the_settings_stand_until_a_node_moves_while_we_run() -> None:
    known = Known(SimDisk(1), Voter(1, "h", 1), Voter(2, "by-settings", 7))
    assert known.take(image(n2=2)) == {2: ("by-settings", 7)}
    assert known.take(image(n2=3)) == {2: ("h", 3)}


def test_one_that_is_forgotten_is_reached_no_more_unless_the_settings_name_it() -> None:
    known = Known(SimDisk(1), Voter(2, "h", 2))
    known.take(image(n2=2, n3=3))
    assert known.take(image()) == {2: ("h", 2)}


def test_a_cluster_that_keeps_no_registrations_is_as_it_was() -> None:
    disk = SimDisk(1)
    known = Known(disk, Voter(2, "h", 2))
    assert known.take(image()) == {2: ("h", 2)}
    assert known.told == []
    assert not disk.exists(f"{DIRECTORY}/{ADDRESSES_FILE}")


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 65_535), min_size=1, max_size=9))
def test_what_is_noted_is_read(ports: dict[int, int]) -> None:
    noted = tuple(Voter(node_id, "h-1.example", port) for node_id, port in ports.items())
    assert decode_addresses(encode_addresses(noted)) == noted


@given(st.binary(max_size=200))
def test_noise_is_as_nothing(noise: bytes) -> None:
    assert all(isinstance(each, Voter) for each in decode_addresses(noise))


@pytest.mark.parametrize(
    "data", [None, b"", b"1\n2@h:1\n", b"0\n", b"0\nnobody\n", b"0\n" + b"2@h:1\n" * 20_000]
)
def test_what_cannot_be_read_is_as_nothing(data: bytes | None) -> None:
    assert decode_addresses(data) == ()
