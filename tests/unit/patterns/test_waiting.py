"""Patterns that are started before their cluster: the settings that say so are those of all their clients."""

import sqlite3
import threading
from pathlib import Path

from distributedlog import ConsumerRecord
from distributedlog.client.faces.settings import ConsumerSettings, ProducerSettings
from distributedlog.patterns import Outbox, OutboxRelay, RetryPolicy, Runner
from tests.ports import free_port
from tests.system.server_process import ServerProcess

WAIT_S = 60.0


def test_who_waits_for_the_cluster_is_there_before_it(tmp_path: Path) -> None:
    reading: ConsumerSettings = {"wait_for_cluster": True, "metadata_max_age_ms": 100}
    writing: ProducerSettings = {"wait_for_cluster": True}
    address = f"127.0.0.1:{free_port()}"
    handled: list[bytes] = []
    runner = Runner(
        address,
        group_id="g",
        retries=RetryPolicy(delays_ms=()),
        consumer=reading,
        producer=writing,
    )

    @runner.handler("t")
    def handle(record: ConsumerRecord) -> None:
        handled.append(record.value)
        runner.stop()

    def relay() -> None:
        shop = sqlite3.connect(tmp_path / "shop.db")
        Outbox().create(shop)
        with shop:
            Outbox().add(shop, "t", "v")
        shop.close()
        with OutboxRelay(
            lambda: sqlite3.connect(tmp_path / "shop.db"), address, name="shop", producer=writing
        ) as relaying:
            relaying.run_once()

    running = [threading.Thread(target=each, daemon=True) for each in (runner.run, relay)]
    for each in running:
        each.start()
    settings = {
        "listeners": f"PLAINTEXT://{address}",
        "offsets.topic.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
    }
    with ServerProcess(tmp_path / "broker", settings):
        for each in running:
            each.join(WAIT_S)
    assert handled == [b"v"]
