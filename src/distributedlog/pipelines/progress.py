"""What Spark says of a micro-batch, in our words.

Spark describes each micro-batch of a stream as JSON.  Of that a `Batch` keeps what people ask for: which
flow, how many rows it read and how many it wrote, how long, how far it has come in its topics, and how many
rows came too late for their window.

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
    """Read."""
    milliseconds: int
    rows_out: int = 0
    positions: Positions = field(default_factory=dict)
    rows_too_late: int = 0


def short_name(flow: str) -> str:
    return flow.replace("`", "").strip("'").rsplit(".", 1)[-1]


def parse_progress(text: str, rows_written: int = 0) -> Batch | None:
    """Parses progress; None for a stream without a name: it is none of a pipeline's.  `rows_written` counts
    where the sink does not say how many it wrote."""
    progress = json.loads(text)
    name = progress.get("name")
    if not name:
        return None
    positions: dict[str, dict[int, int]] = {}
    for source in progress.get("sources") or ():
        for topic, partitions in parse_positions(source.get("endOffset")).items():
            positions.setdefault(topic, {}).update(partitions)
    return Batch(
        flow=short_name(str(name)),
        batch=int(progress.get("batchId", -1)),
        rows=int(progress.get("numInputRows") or 0),
        milliseconds=int((progress.get("durationMs") or {}).get("triggerExecution") or 0),
        rows_out=_rows_out(progress.get("sink"), rows_written),
        positions=positions,
        rows_too_late=sum(
            int(each.get("numRowsDroppedByWatermark") or 0) for each in progress.get("stateOperators") or ()
        ),
    )


def _rows_out(sink: Any, otherwise: int) -> int:
    rows = sink.get("numOutputRows") if isinstance(sink, dict) else None
    return rows if isinstance(rows, int) and rows >= 0 else otherwise


def parse_positions(offset: Any) -> dict[str, dict[int, int]]:
    """Parses positions; empty for the offset of anything but topics."""
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
