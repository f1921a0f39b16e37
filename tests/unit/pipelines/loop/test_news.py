from dataclasses import replace

import pytest

from distributedlog.client.offset_specs import Isolation
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.pipelines.loop.news import (
    FlowReads,
    Sight,
    TopicEnds,
    TopicRead,
    difference,
    topics_of,
    unknowable,
)
from distributedlog.spark.source.options import parse_stream_options
from distributedlog.spark.source.subscription import Subscription

ORDERS = parse_stream_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"})
READ = TopicRead("a:1", Subscription(("orders",)), Isolation.READ_COMMITTED)
ENDS = TopicEnds({TopicPartition("orders", 0): 7}, {"orders": Uuid(bytes(range(16)))})
BEFORE = Sight({"orders.py": (1, 2)}, {READ: ENDS})


def test_what_is_as_it_was_is_no_news() -> None:
    assert difference(BEFORE, Sight(dict(BEFORE.files), {READ: replace(ENDS)})) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (replace(BEFORE, files={"orders.py": (1, 3)}), "orders.py has changed"),
        (replace(BEFORE, files={**BEFORE.files, "more.sql": (0, 0)}), "more.sql has changed"),
        (replace(BEFORE, files={}), "orders.py has changed"),
        (replace(BEFORE, ends={}), "other topics"),
        (replace(BEFORE, ends={READ: replace(ENDS, offsets={TopicPartition("orders", 0): 8})}), "orders"),
        (replace(BEFORE, ends={READ: replace(ENDS, offsets={TopicPartition("orders", 0): 6})}), "orders"),
        (
            replace(
                BEFORE,
                ends={READ: replace(ENDS, offsets={**ENDS.offsets, TopicPartition("orders", 1): 0})},
            ),
            "orders has news",
        ),
        (replace(BEFORE, ends={READ: replace(ENDS, topic_ids={"orders": Uuid(bytes(16))})}), "orders"),
    ],
    ids=["edited", "new file", "file gone", "topics", "records", "fewer", "partition", "made again"],
)
def test_whatever_differs_is_news(now: Sight, why: str) -> None:
    assert why in (difference(BEFORE, now) or "nothing")


def test_topics_are_looked_at_once_for_each_way_of_reading_them() -> None:
    uncommitted = parse_stream_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "subscribe": "orders",
            "kafka.isolation.level": "read_uncommitted",
        }
    )
    reads = (FlowReads("raw", (ORDERS,)), FlowReads("again", (ORDERS, uncommitted)), FlowReads("orders"))
    assert topics_of(reads) == {READ, replace(READ, isolation=Isolation.READ_UNCOMMITTED)}


def test_flows_over_topics_and_tables_of_the_pipeline_can_be_known() -> None:
    assert unknowable((FlowReads("raw", (ORDERS,)), FlowReads("view", is_streaming=False))) is None


def test_a_stream_that_looks_at_the_clock_has_nothing_to_do_without_records() -> None:
    assert unknowable((FlowReads("raw", (ORDERS,), is_repeatable=False),)) is None


@pytest.mark.parametrize(
    "flow",
    [
        FlowReads("other", others=("Relation parquet",)),
        FlowReads("other", is_streaming=False, is_repeatable=False),
    ],
    ids=["files", "clock"],
)
def test_other_flows_cannot(flow: FlowReads) -> None:
    assert "flow other" in (unknowable((FlowReads("raw", (ORDERS,)), flow)) or "")
