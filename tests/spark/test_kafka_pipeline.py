"""A pipeline that was written for Spark's Kafka connector runs here, with one word of it changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark import kafka_pipeline
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THEIRS, OURS = 'format("kafka")', 'format("dlog")'


def pipeline_with_one_word_changed() -> dict[str, Callable[..., Any]]:
    text = Path(kafka_pipeline.__file__).read_text()
    assert text.count(THEIRS) == 3, "a source of each kind, and a sink"
    changed: dict[str, Any] = {"__name__": "changed"}
    exec(compile(text.replace(THEIRS, OURS), "kafka_pipeline.py", "exec"), changed)
    return changed


def test_a_pipeline_for_kafka_runs_with_only_the_format_changed(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    pipeline = pipeline_with_one_word_changed()
    source, target = topics.create("orders", 2), topics.create("totals", 1)
    checkpoint = str(tmp_path / "checkpoint")
    ledger: dict[str, int] = {}

    def order(number: int) -> None:
        customer, cents = f"c{number % 5}", number * 7
        ledger[customer] = ledger.get(customer, 0) + cents
        value = json.dumps({"customer": customer, "cents": cents}).encode()
        topics.send(source, value=value, partition=number % 2, headers=[("kind", b"order")])

    for number in range(1, 1201):
        order(number)
    topics.send(source, value=b"no order: it has no headers", partition=0)
    topics.flush()
    pipeline["totals"](spark, topics.bootstrap, source, target, checkpoint)
    assert pipeline["latest_totals"](spark, topics.bootstrap, target) == ledger

    for number in range(1201, 1301):
        order(number)
    topics.flush()
    pipeline["totals"](spark, topics.bootstrap, source, target, checkpoint)  # it goes on where it was
    assert pipeline["latest_totals"](spark, topics.bootstrap, target) == ledger
    assert sum(topics.group_positions("totals").values()) == 1301
