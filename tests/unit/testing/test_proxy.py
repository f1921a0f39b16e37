"""A link that is cut, delayed, broken; and one behind which nobody listens."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from distributedlog.testing.proxy import LOOPBACK, Proxy

WAIT_S = 20.0


class Echo:
    """What listens behind a link: it says everything back."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server((LOOPBACK, port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while True:
                threading.Thread(target=_echo, args=(self._listening.accept()[0],), daemon=True).start()
        except OSError:
            return

    def close(self) -> None:
        if self._thread.is_alive():
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(WAIT_S)


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1000):
                connection.sendall(data)
        except OSError:
            return


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy(2)
    yield proxy
    proxy.close()
    assert not [each for each in threading.enumerate() if each.name == "dlog-test-proxy"]


@pytest.fixture
def echo(proxy: Proxy) -> Iterator[Echo]:
    echo = Echo(proxy.ports[0][1])
    yield echo
    echo.close()


@pytest.fixture
def connection(proxy: Proxy, echo: Echo) -> Iterator[socket.socket]:
    with socket.create_connection((LOOPBACK, proxy.ports[0][0]), WAIT_S) as connection:
        assert said(connection, b"hello") == b"hello"
        yield connection


def said(connection: socket.socket, what: bytes) -> bytes:
    connection.sendall(what)
    return connection.recv(1000)


def test_what_a_cut_holds_back_comes_when_it_is_mended(proxy: Proxy, connection: socket.socket) -> None:
    proxy.cut(1)
    connection.sendall(b"held")
    with socket.create_connection((LOOPBACK, proxy.ports[0][0]), WAIT_S) as late:
        late.sendall(b"too")
        for each in (connection, late):
            each.settimeout(0.1)
            with pytest.raises(TimeoutError):
                each.recv(1000)
            each.settimeout(WAIT_S)
        proxy.mend(1)
        assert (connection.recv(1000), late.recv(1000)) == (b"held", b"too")


def test_a_delay_is_for_each_way_and_holds_up_nothing_else(proxy: Proxy, connection: socket.socket) -> None:
    proxy.delay(1, 100)
    begun = time.monotonic()
    connection.sendall(b"1")
    connection.sendall(b"2")
    found = b""
    while len(found) < 2:
        found += connection.recv(1000)
    assert found == b"12"
    assert time.monotonic() - begun >= 0.2
    proxy.delay(1, 0)
    assert said(connection, b"3") == b"3"


def test_a_connection_breaks_and_the_next_one_works(proxy: Proxy, connection: socket.socket) -> None:
    proxy.disconnect(1)
    with pytest.raises(ConnectionResetError):
        connection.recv(1000)
    with socket.create_connection((LOOPBACK, proxy.ports[0][0]), WAIT_S) as again:
        assert said(again, b"again") == b"again"


def test_where_nobody_listens_behind_it_a_link_refuses_until_somebody_does(
    proxy: Proxy, echo: Echo, connection: socket.socket
) -> None:
    echo.close()
    proxy.disconnect(1)
    deadline = time.monotonic() + WAIT_S
    told, behind = proxy.ports[0]

    def is_refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, told)) != 0

    while not is_refused() and time.monotonic() < deadline:
        pass
    assert is_refused()
    back = Echo(behind)
    while is_refused() and time.monotonic() < deadline:
        pass
    with socket.create_connection((LOOPBACK, told), WAIT_S) as again:
        assert said(again, b"back") == b"back"
    back.close()
