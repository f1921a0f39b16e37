"""Patterns that take longer to look up than a turn may, in groups with members."""

import pytest

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer import patterns
from distributedlog.groups.consumer.patterns import TURN_MATCHES_MAX, compile_pattern
from distributedlog.groups.requests import DeleteGroupRequest
from distributedlog.model.error_codes import ErrorCode
from tests.unit.groups.consumer.stage import Client, ConsumerStage, Topics
from tests.unit.groups.stage import GROUP


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are matched with patterns, as they are."""
    names: list[str] = []

    class Noting:
        def __init__(self, pattern: str) -> None:
            self._matches = compile_pattern(pattern).fullmatch

        def fullmatch(self, name: str) -> object:
            names.append(name)
            return self._matches(name)

    monkeypatch.setattr(patterns, "compile_pattern", Noting)
    return names


def large_cluster(topic_count: int) -> Topics:
    return Topics(named=2, **{f"a{at:05}": 1 for at in range(topic_count)})


def test_no_turn_matches_more_names_than_it_may_and_literal_names_come_first(matched: list[str]) -> None:
    stage = ConsumerStage(large_cluster(3 * TURN_MATCHES_MAX))
    first = stage.member("m0", "named", pattern="a.*7")
    assert (matched, first.owned) == ([], stage.topics.all_partitions("named"))
    assert first.beat() is ErrorCode.NONE
    assert matched == []
    turns = 0
    while (due_ms := stage.runtime.next_deadline_ms()) is not None and due_ms < stage.now_ms + 1_000:
        before = len(matched)
        stage.advance(due_ms - stage.now_ms)
        assert len(matched) - before <= TURN_MATCHES_MAX
        turns += 1
        assert first.beat() is ErrorCode.NONE, "others are served between the turns"
    assert (turns, len(matched)) == (4, 3 * TURN_MATCHES_MAX + 1)
    stage.settle_members(first)
    names = [name for name in stage.topics.names() if name.endswith("7")]
    assert first.owned == stage.topics.all_partitions("named", *names)
    assert stage.group.patterns["a.*7"].topics == frozenset(names)
    stage.topics.create("a7", 1)
    stage.settle_members(first)
    assert stage.topics.all_partitions("a7") <= first.owned
    assert len(matched) == 3 * TURN_MATCHES_MAX + 2, "only the new name is matched"


def test_patterns_of_several_groups_are_resolved_one_after_another_and_each_once(matched: list[str]) -> None:
    stage = ConsumerStage(large_cluster(2 * TURN_MATCHES_MAX))
    members = [stage.member(f"m{at}", pattern=pattern) for at, pattern in enumerate(("a.*1", "a.*2", "a.*1"))]
    elsewhere = Client(stage, "other", (), None, "a.*2").request()._replace(group_id="other")
    assert stage.code_of(elsewhere) is ErrorCode.NONE
    stage.advance(1_000)
    assert len(matched) == 2 * (2 * TURN_MATCHES_MAX + 1)
    stage.settle_members(*members)
    assert set(stage.group.patterns) == {"a.*1", "a.*2"}
    assert set(stage.machine.consumers.by_id["other"].patterns) == {"a.*2"}


def test_a_coordinator_that_takes_over_resolves_what_the_last_one_did_not(matched: list[str]) -> None:
    stage = ConsumerStage(large_cluster(2 * TURN_MATCHES_MAX))
    first = stage.member("m0", "named", pattern="a.*7")
    stage.failover()
    stage.advance(1_000)
    assert (matched, stage.group.patterns) == ([], {})
    first.beat()
    stage.advance(1_000)
    stage.settle_members(first)
    assert len(stage.group.patterns["a.*7"].topics) == len(first.owned) - 2 > 0


def test_a_group_that_is_gone_before_its_patterns_are_resolved_is_none() -> None:
    stage = ConsumerStage(large_cluster(2 * TURN_MATCHES_MAX))
    first = stage.member("m0", pattern="a.*7")
    first.leave()
    assert stage.ask(DeleteGroupRequest(GROUP)) is None
    entries = len(stage.log.entries)
    stage.advance(1_000)
    assert len(stage.log.entries) == entries


def test_what_patterns_stand_for_must_fit_one_entry_also_beside_the_heartbeat() -> None:
    config = GroupConfig(entry_bytes_max=2_000)
    stage = ConsumerStage(large_cluster(2 * TURN_MATCHES_MAX), config=config)
    first = stage.member("m0", "named", pattern="a.*")
    entries = len(stage.log.entries)
    stage.advance(1_000)
    assert len(stage.log.entries) == entries
    assert first.beat() is ErrorCode.MESSAGE_TOO_LARGE
