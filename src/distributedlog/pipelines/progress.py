"""What Spark says of a micro-batch, in our words.

Spark describes each micro-batch of a stream as JSON.  Of that a `Batch` keeps what people ask for: which
flow, how many rows, how long, how far it has come in its topics, and how many rows came too late for their
window.

A flow's name has a catalog and a database in front (`spark_catalog.default.orders`); people know the last
part. Positions are kept only of sources that are topics: their offsets look like `{"orders": {"0": 12}}`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Positions = Mapping[str, Mapping[int, int]]
"""Topic → partition → the next offset to read."""


@dataclass(frozen=True, slots=True)
class Batch:
    flow: str
    batch: int
    rows: int
    milliseconds: int
    positions: Positions = field(default_factory=dict)
    rows_too_late: int = 0


def short_name(flow: str) -> str:
    return flow.replace("`", "").strip("'").rsplit(".", 1)[-1]


def parse_progress(text: str) -> Batch | None:
    """None for a stream without a name: it is none of a pipeline's."""
    told = json.loads(text)
    name = told.get("name")
    if not name:
        return None
    positions: dict[str, dict[int, int]] = {}
    for source in told.get("sources") or ():
        for topic, partitions in parse_positions(source.get("endOffset")).items():
            positions.setdefault(topic, {}).update(partitions)
    return Batch(
        flow=short_name(str(name)),
        batch=int(told.get("batchId", -1)),
        rows=int(told.get("numInputRows") or 0),
        milliseconds=int((told.get("durationMs") or {}).get("triggerExecution") or 0),
        positions=positions,
        rows_too_late=sum(
            int(each.get("numRowsDroppedByWatermark") or 0) for each in told.get("stateOperators") or ()
        ),
    )


def parse_positions(offset: Any) -> dict[str, dict[int, int]]:
    """Empty for the offset of anything but topics."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, dict):
        return {}
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            continue
        numbers = {
            int(partition): position
            for partition, position in partitions.items()
            if str(partition).isdecimal() and isinstance(position, int)
        }
        if numbers and len(numbers) == len(partitions):
            found[str(topic)] = numbers
    return found
