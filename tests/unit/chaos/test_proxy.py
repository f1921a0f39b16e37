"""The proxy: cut ways hold bytes back in one direction, joined ways let them go on, the dead are refused."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from tests.chaos.network import Network, Way

WAIT_SECONDS = 60.0
SILENT_SECONDS = 0.3


def listening(port: int = 0) -> socket.socket:
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(WAIT_SECONDS)
    return server


class Stage:
    """Broker 1 connects to broker 2, which is played by a socket here."""

    def __init__(self) -> None:
        self.two = listening()
        self.two_port = self.two.getsockname()[1]
        ports = {1: self.two_port, 2: self.two_port}
        self.network = Network([1, 2], ports, ports)
        self.port = self.network.data_ports[1, 2]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)

    def accept(self) -> socket.socket:
        accepted, _ = self.two.accept()
        accepted.settimeout(WAIT_SECONDS)
        return accepted


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    with made.network:
        yield made
        made.two.close()


def is_silent(end: socket.socket) -> bool:
    end.settimeout(SILENT_SECONDS)
    try:
        return not end.recv(100)
    except TimeoutError:
        return True
    finally:
        end.settimeout(WAIT_SECONDS)


def test_bytes_are_held_back_only_the_way_that_is_cut(stage: Stage) -> None:
    with stage.connect() as one, stage.accept() as two:
        one.sendall(b"there")
        assert two.recv(100) == b"there"
        stage.network.cut([(1, 2)])
        one.sendall(b"again")
        two.sendall(b"back")
        assert one.recv(100) == b"back"
        assert is_silent(two)
        stage.network.join()
        assert two.recv(100) == b"again"
        stage.network.cut([(2, 1)])
        two.sendall(b"late")
        one.sendall(b"more")
        assert two.recv(100) == b"more"
        assert is_silent(one)
        stage.network.join([(2, 1)])
        assert one.recv(100) == b"late"


@pytest.mark.parametrize("way", [(1, 2), (2, 1)])
def test_no_connection_gets_through_where_either_way_is_cut(stage: Stage, way: Way) -> None:
    stage.network.cut([way])
    with stage.connect() as one:
        one.sendall(b"hello")
        stage.two.settimeout(SILENT_SECONDS)
        with pytest.raises(TimeoutError):
            stage.two.accept()
        stage.two.settimeout(WAIT_SECONDS)
        stage.network.join([way])
        with stage.accept() as two:
            assert two.recv(100) == b"hello"


def test_the_end_of_a_connection_is_held_back_too(stage: Stage) -> None:
    with stage.connect() as one:
        with stage.accept() as two:
            one.sendall(b"x")
            assert two.recv(100) == b"x"
            stage.network.cut([(2, 1)])
        one.settimeout(SILENT_SECONDS)
        with pytest.raises(TimeoutError):
            one.recv(100)
        one.settimeout(WAIT_SECONDS)
        stage.network.join()
        assert one.recv(100) == b""


def test_a_flapping_way_lets_all_through_in_the_end(stage: Stage) -> None:
    stage.network.flap([(1, 2)], 0.02)
    with stage.connect() as one, stage.accept() as two:
        for number in range(10):
            one.sendall(b"%d" % number)
            assert two.recv(100) == b"%d" % number


def test_who_is_dead_refuses_and_is_reached_again_when_it_lives(stage: Stage) -> None:
    stage.two.close()
    deadline = time.monotonic() + WAIT_SECONDS
    with contextlib.suppress(ConnectionRefusedError):
        while time.monotonic() < deadline:  # the first is not refused: nobody has noticed
            stage.connect().close()
            time.sleep(0.01)
    assert time.monotonic() < deadline
    stage.two = listening(stage.two_port)
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError), stage.connect():
            break
        time.sleep(0.01)
    stage.accept().close()
