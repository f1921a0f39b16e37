import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from distributedlog.cli.cluster.reassignment_plan import ID_MAX, Plan, parse_plan, spell_plan
from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import TopicPartition

ids = st.integers(0, ID_MAX)
plans = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1), ids), st.lists(ids, min_size=1).map(tuple), min_size=1
)


def test_a_plan_of_kafkas_tool_is_read() -> None:
    text = """{"version":1,"partitions":[
      {"topic":"orders","partition":0,"replicas":[2,3],"log_dirs":["any","any"]},
      {"topic":"orders","partition":1,"replicas":[3]}]}"""
    assert parse_plan(text) == {TopicPartition("orders", 0): (2, 3), TopicPartition("orders", 1): (3,)}


@given(plans)
def test_what_is_spelled_is_read_again(plan: Plan) -> None:
    assert parse_plan(spell_plan(plan)) == plan


def test_a_plan_that_names_a_partition_twice_is_refused() -> None:
    move = {"topic": "t", "partition": 0, "replicas": [1]}
    with pytest.raises(InvalidRequestError, match="t-0 is in the plan more than once"):
        parse_plan(json.dumps({"version": 1, "partitions": [move, move]}))


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (7, "no object"),
        ({"partition": 0, "replicas": [1]}, '"topic"'),
        ({"topic": "t", "replicas": [1]}, '"partition"'),
        ({"topic": "t", "partition": True, "replicas": [1]}, '"partition"'),
        ({"topic": "t", "partition": 2**31, "replicas": [1]}, '"partition"'),
        ({"topic": "t", "partition": 0, "replicas": []}, '"replicas"'),
        ({"topic": "t", "partition": 0, "replicas": [-1]}, '"replicas"'),
        ({"topic": "t", "partition": 0, "replicas": ["1"]}, '"replicas"'),
    ],
)
def test_a_wrong_move_is_named(move: object, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        parse_plan(json.dumps({"version": 1, "partitions": [move]}))


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_plan(text)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"version": 2}', '{"version": 1, "partitions": []}']
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_plan(text)
