"""The load's programs on Java's clients tell what those on other clients tell.

A load of them alone, with nothing that happens to anybody, is judged by the checker of chaos.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from distributedlog.client.admin.admin import NewTopic
from tests.bench.topics import make_topics
from tests.reliability.checker import ALWAYS, GROUPS, IDEMPOTENT, WHOLE, check, describe
from tests.reliability.history import LATEST, Outcome, Place
from tests.reliability.load import Load, final_read
from tests.reliability.programs.java.compiled import compile_programs
from tests.reliability.programs.transactions.topics import group_of, output_of
from tests.system.server_process import ServerProcess

PLAIN, INPUT, PARTITIONS = "told-by-java", "paid-by-java", 2
GROUP_NAMES = ("classic", "newer")
SETTINGS = {"group.min.session.timeout.ms": 1_000}
CLIENTS = {
    "p-java": ("producing_java", PLAIN),
    "c-java": ("consuming_java", PLAIN),
    "classic.java.range": ("grouping_java", PLAIN),
    "newer.java.consumer": ("grouping_java", PLAIN),
    "mixer.java": ("transactions.mixing", INPUT),
    "transformer.java.0": ("transactions.transforming", INPUT),
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(Path(tmp_path_factory.mktemp("load")) / "node", SETTINGS) as node:
        yield node.facts["client"]
        assert node.stop() == 0


def test_all_that_java_s_clients_do_is_told_and_nothing_is_wrong(bootstrap: str, tmp_path: Path) -> None:
    compile_programs()
    topics = (PLAIN, INPUT, output_of(INPUT))
    for topic in topics:
        make_topics(bootstrap, NewTopic(topic, PARTITIONS, 1))
    with Load(bootstrap, PLAIN, PARTITIONS, tmp_path) as load:
        load.environment = {**os.environ, "DLOG_LOAD_PAUSE_MS": "5"}
        for name, (program, topic) in CLIENTS.items():
            load.start(program, name, topic)
        load.wait_for(200, CLIENTS)
        history = load.stop()
    for topic in topics:
        history = replace(history, final={**history.final, **final_read(bootstrap, topic, PARTITIONS)})

    checks = {**ALWAYS, **IDEMPOTENT, **GROUPS, "read then gone": WHOLE["read then gone"]}
    assert not (found := check(history, checks)), describe(found)
    assert all(send.offset is not None for send in history.acknowledged() if send.process == "p-java")
    assert {each.what for each in history.positions} == {LATEST, group_of(INPUT), *GROUP_NAMES}
    for group in GROUP_NAMES:
        owned = {each.place for each in history.owned if each.group == group and each.generation > 0}
        assert owned == {Place(PLAIN, at) for at in range(PARTITIONS)}
    assert history.transactions(Outcome.OK)
