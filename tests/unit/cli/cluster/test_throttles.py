"""Which settings throttle moves, as `kafka-reassign-partitions` would have them."""

from distributedlog.cli.cluster import throttles
from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.cli.cluster.throttles import (
    RATES,
    REPLICAS,
    add_plan,
    plan_narrowing,
    plan_removal,
    plan_throttles,
)
from distributedlog.client.admin.admin import Reassignment
from distributedlog.client.admin.configs import ConfigEdit, ConfigOf, of_broker, of_topic
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.ids import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def values(changes: throttles.Changes, whose: ConfigOf) -> list[str | None]:
    edits = changes[whose]
    assert [edit.op for edit in edits] == [ConfigOp.SET] * 2
    return [edit.value for edit in edits]


def test_who_held_it_before_sends_and_who_is_added_fetches() -> None:
    moves = add_plan({}, {A0: (1, 2), A1: (2, 3), B0: (1,)}, {A0: (3, 2), A1: (2, 1), B0: (1,)})
    changes = plan_throttles(moves, 500)
    assert [edit.name for edit in changes[of_topic("a")]] == list(REPLICAS)
    assert values(changes, of_topic("a")) == ["0:2,0:1,1:2,1:3", "0:3,1:1"]
    assert of_topic("b") not in changes, "it stays where it is"
    for broker in (1, 2, 3):
        assert [edit.name for edit in changes[of_broker(broker)]] == list(RATES)
        assert values(changes, of_broker(broker)) == ["500", "500"]


def test_moves_under_way_stay_throttled_and_a_changed_one_begins_at_the_original() -> None:
    moving = {A0: Reassignment((3, 1), (3,), (1,)), B0: Reassignment((2, 1), (2,), (1,))}
    moves = add_plan(moving, {B0: (2, 1)}, {B0: (4,)})
    assert moves == {A0: moving[A0], B0: Reassignment((4, 1), (4,), (1,))}
    changes = plan_throttles(moves, 1)
    assert values(changes, of_topic("a")) == ["0:1", "0:3"]
    assert values(changes, of_topic("b")) == ["0:1", "0:4"]


def test_a_topic_with_more_replicas_than_fit_a_setting_is_throttled_as_a_whole() -> None:
    before: Plan = {TopicPartition("a", each): (1,) for each in range(6_000)}
    changes = plan_throttles(add_plan({}, before, dict.fromkeys(before, (2,))), 1)
    assert values(changes, of_topic("a")) == ["*", "*"]


def test_all_of_it_is_removed() -> None:
    changes = plan_removal({"a"}, {2})
    assert changes == {
        of_topic("a"): tuple(ConfigEdit(name, ConfigOp.DELETE) for name in REPLICAS),
        of_broker(2): tuple(ConfigEdit(name, ConfigOp.DELETE) for name in RATES),
    }


def test_what_was_refused_is_taken_out_again() -> None:
    before: Plan = {A0: (1,), A1: (2,), B0: (1,)}
    plan: Plan = {A0: (3,), A1: (4,), B0: (3,)}
    wide = add_plan({}, before, plan)
    changes = plan_narrowing(wide, add_plan({}, before, {A0: (3,)}), 7)
    assert values(changes, of_topic("a")) == ["0:1", "0:3"], "one of its partitions moves"
    removal = plan_removal({"b"}, {2, 4})
    assert {whose: changes[whose] for whose in removal} == removal, "nothing of these moves"
    assert changes.keys() == {of_topic("a"), *removal}, "1 and 3 keep the rate that they have"
    assert plan_narrowing(wide, {}, 7) == plan_removal({"a", "b"}, {1, 2, 3, 4})
