"""Importing the package loads nothing that is not used: a program pays for the client when it makes one."""

import subprocess
import sys

HEAVY = {"asyncio", "crc32c", "grpc", "pyarrow", "google", "click", "rich", "distributedlog.client"}


def test_importing_the_package_loads_no_client() -> None:
    program = f"import sys, distributedlog; sys.exit(bool(sys.modules.keys() & {HEAVY!r}))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_producer_and_a_consumer_load_no_administration() -> None:
    program = (
        "import sys; from distributedlog import Consumer, Producer;"
        "sys.exit('distributedlog.client.admin.topics' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_producer_and_a_consumer_load_nothing_that_only_a_log_or_an_address_book_needs() -> None:
    """A millisecond or more each."""
    parts = {"distributedlog.model.config", "distributedlog.model.setting_text", "ipaddress"}
    program = (
        "import sys; from distributedlog import Consumer, Producer;"
        f"sys.exit(bool(sys.modules.keys() & {parts!r}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_producer_and_a_consumer_load_no_groups_and_no_transactions_before_they_have_some() -> None:
    parts = {"distributedlog.client.groups.membership", "distributedlog.client.transactions.manager"}
    program = (
        "import sys; from distributedlog import Consumer, Producer; Consumer('h:1'); Producer('h:1');"
        f"sys.exit(bool(sys.modules.keys() & {parts!r}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_client_loads_no_broker_and_none_of_its_libraries() -> None:
    parts = ("grpc", "pyarrow", "google", "click", "rich", "distributedlog.broker", "distributedlog.storage")
    program = (
        "import sys; from distributedlog import Admin, Producer, aio;"
        f"sys.exit(bool(sys.modules.keys() & {set(parts)!r}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
