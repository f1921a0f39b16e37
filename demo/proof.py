"""The end of the demo: what the pipeline made, counted against the ledger.

| what is compared         | has to be                                                           |
|--------------------------|---------------------------------------------------------------------|
| table `events`, per kind | every acknowledged event, once, and no other; the same money        |
| table `per_10s`          | every event that was on time, in its window; late ones may be there |
| topic dead-letters       | every event that makes no sense, once, with the right reason        |
| topic per-10s            | every row of the table, once                                        |

Tables and topics are exactly once: a row that is missing, or there twice, is a failure.  The topics are read
as any client reads them that asks for what is committed.
"""

import collections
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from demo.workload import KINDS, WINDOW_SECONDS, Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    expected: str
    found: str
    is_right: bool


def prove(spark: "SparkSession", bootstrap: str, ledger: Ledger) -> list[Check]:
    checks = [_no_failures(ledger), *_events(spark, ledger)]
    checks += _windows(spark, ledger)
    checks += _dead_letters(bootstrap, ledger)
    checks.append(_window_topic(spark, bootstrap))
    return checks


def _no_failures(ledger: Ledger) -> Check:
    return Check("deliveries that failed", "0", str(ledger.failed), ledger.failed == 0)


def _events(spark: "SparkSession", ledger: Ledger) -> list[Check]:
    checks = []
    for kind in KINDS:
        rows = spark.sql("SELECT id, cents FROM events WHERE kind = :kind", args={"kind": kind}).collect()
        found = {row["id"] for row in rows}
        missing, foreign = len(ledger.ids[kind] - found), len(found - ledger.ids[kind])
        twice = len(rows) - len(found)
        cents = sum(row["cents"] for row in rows)
        is_right = not missing and not foreign and not twice and cents == ledger.cents[kind]
        told = f"{len(rows):,} rows, {cents / 100:,.2f}"
        if not is_right:
            told += f" ({missing} missing, {twice} twice, {foreign} unknown)"
        expected = f"{len(ledger.ids[kind]):,} rows, {ledger.cents[kind] / 100:,.2f}"
        checks.append(Check(f"{kind}, each once", expected, told, is_right))
    return checks


def _windows(spark: "SparkSession", ledger: Ledger) -> list[Check]:
    rows = spark.sql("SELECT kind, unix_seconds(began) AS began, events FROM per_10s").collect()
    counted = collections.Counter[tuple[str, int]]()
    for row in rows:
        counted[(row["kind"], row["began"])] += row["events"]
    wrong = [
        window
        for window in counted.keys() | ledger.on_time.keys()
        if not ledger.on_time[window] <= counted[window] <= ledger.on_time[window] + ledger.late[window]
    ]
    late, in_time = sum(ledger.late.values()), sum(ledger.on_time.values())
    total = sum(counted.values())
    return [
        Check(
            f"windows of {WINDOW_SECONDS} s, each once",
            f"{len(counted.keys() | ledger.on_time.keys()):,} windows",
            f"{len(rows):,} windows" + (f" ({len(wrong)} wrong)" if wrong else ""),
            not wrong and len(rows) == len(counted),
        ),
        Check(
            "events in windows",
            f"{in_time:,} on time, {late:,} late",
            f"{total:,}, so {late - (total - in_time):,} came too late",
            in_time <= total <= in_time + late,
        ),
    ]


def _dead_letters(bootstrap: str, ledger: Ledger) -> list[Check]:
    letters = [headers for headers, _ in read_topic(bootstrap, "dead-letters")]
    reasons = collections.Counter(headers["reason"] for headers in letters)
    twice = len(letters) - len({(each["topic"], each["partition"], each["offset"]) for each in letters})
    expected = sum(ledger.malformed.values())
    is_right = reasons == ledger.malformed and not twice
    told = f"{len(letters):,} letters"
    if not is_right:
        told = f"{dict(reasons)} instead of {dict(ledger.malformed)} ({twice} twice)"
    return [Check("dead letters in their topic, each once", f"{expected:,} letters", told, is_right)]


def _window_topic(spark: "SparkSession", bootstrap: str) -> Check:
    rows = spark.sql("SELECT kind, unix_seconds(began) AS began, events FROM per_10s").collect()
    expected = {(row["kind"], row["began"], row["events"]) for row in rows}
    from datetime import datetime

    sent = []
    for _, value in read_topic(bootstrap, "per-10s"):
        told = json.loads(value)
        sent.append((told["kind"], int(datetime.fromisoformat(told["began"]).timestamp()), told["events"]))
    twice = f" ({len(sent) - len(set(sent))} twice)" if len(sent) > len(set(sent)) else ""
    return Check(
        "windows in their topic, each once",
        f"{len(expected):,} windows",
        f"{len(sent):,} windows{twice}",
        sorted(sent) == sorted(expected),
    )


def read_topic(bootstrap: str, topic: str) -> list[tuple[dict[str, str], bytes]]:
    """(headers, value) of all committed records of a topic with one partition, read by librdkafka."""
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "demo-proof", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0,
        "isolation.level": "read_committed",
    }  # fmt: skip
    found: list[tuple[dict[str, str], bytes]] = []
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(TIMEOUT_SECONDS)
            if message is None:
                raise TimeoutError(f"nothing came of topic {topic} within {TIMEOUT_SECONDS:.0f} seconds")
            error = message.error()
            if error is None:
                headers = {str(name): bytes(value or b"").decode() for name, value in _pairs(message)}
                found.append((headers, bytes(message.value() or b"")))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            elif not error.retriable():
                raise RuntimeError(str(error))
    finally:
        consumer.close()


def _pairs(message: Message) -> list[tuple[str, bytes]]:
    headers: Any = message.headers()
    return list(headers or ())
