"""Clients of Connect that are closed while somebody uses or makes them; nobody serves here."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from distributedlog.model.errors import SparkNotReadyError
from distributedlog.spark.session.connect import CONNECT_MODE_VARIABLE, Clients

LATE = """
import sys
from distributedlog.model.errors import SparkNotReadyError
from distributedlog.spark.session.connect import Clients
clients = Clients()
clients.close()
try:
    with clients.connected(int(sys.argv[1])):
        pass
except SparkNotReadyError as error:
    print(error)
"""


@pytest.fixture
def port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def test_a_client_in_use_is_closed_from_another_thread(port: int) -> None:
    clients = Clients()
    is_asking = threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            with clients.connected(port) as client:
                is_asking.set()
                client.conf.set("spark.sql.shuffle.partitions", "1")
        except Exception as error:
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert is_asking.wait(60)
    clients.close()
    asking.join(120)
    assert not asking.is_alive()
    assert len(errors) == 1
    assert CONNECT_MODE_VARIABLE not in os.environ


def test_a_client_that_is_made_late_is_closed_at_once(port: int) -> None:
    clients = Clients()
    clients.close()
    with pytest.raises(SparkNotReadyError, match="is being stopped"), clients.connected(port):
        pytest.fail("it was given to somebody")


def test_a_late_client_does_not_hold_up_the_end_of_the_process(port: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LATE, str(port)], capture_output=True, text=True, timeout=120, check=True
    )
    assert "is being stopped" in ended.stdout
