"""A streaming table and the checkpoints of streams that read it, as Spark writes them, without Spark."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distributedlog.pipelines.compaction.metadata_log import local_path, read_entries, valid_batches
from distributedlog.pipelines.compaction.replacement import METADATA
from distributedlog.pipelines.compaction.streams import find_streams

HOUR_MS = 3_600_000
ROWS = 10


def write_log(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *(json.dumps(each, separators=(",", ":")) for each in entries)]))
    path.with_name(f".{path.name}.crc").write_bytes(b"crc of what was there before")


def make_table(location: Path, batches: int, *, compact_every: int = 10) -> list[dict[str, Any]]:
    """A file of `ROWS` ids for each batch; the entries of all."""
    location.mkdir(parents=True)
    entries: list[dict[str, Any]] = []
    for batch in range(batches):
        path = location / f"part-00000-{batch}-c000.snappy.parquet"
        ids = range(batch * ROWS, (batch + 1) * ROWS)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")
        entries.append(
            {
                "path": path.as_uri(),
                "size": path.stat().st_size,
                "isDir": False,
                "modificationTime": HOUR_MS * (batch + 1),
                "blockReplication": 1,
                "blockSize": 33554432,
                "action": "add",
            }
        )
        is_compact = (batch + 1) % compact_every == 0
        name = f"{batch}.compact" if is_compact else str(batch)
        write_log(location / METADATA / name, entries if is_compact else entries[-1:])
    return entries


def make_checkpoint(checkpoint: Path, read: Sequence[Sequence[dict[str, Any]]], committed: int) -> Path:
    """Makes the checkpoint of a stream whose micro-batches took these files; all up to `committed` are done.
    Returns the source's log."""
    for batch, entries in enumerate(read):
        taken = [
            {"path": each["path"], "timestamp": each["modificationTime"], "batchId": batch}
            for each in entries
        ]
        write_log(checkpoint / "sources" / "0" / str(batch), taken)
        write_log(checkpoint / "offsets" / str(batch), [])
        (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"logOffset":{batch}}}')
        if batch <= committed:
            write_log(checkpoint / "commits" / str(batch), [])
    return checkpoint / "sources" / "0"


def merge_with_arrow(paths: Sequence[str], to: str) -> None:
    os.makedirs(to)
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    pq.write_table(table, os.path.join(to, "part-00000-made.snappy.parquet"))
    Path(to, "_SUCCESS").touch()
    Path(to, ".part-00000-made.snappy.parquet.crc").write_bytes(b"crc")


def named_files(location: Path) -> list[str]:
    """What the table's log names."""
    batches = valid_batches(str(location / METADATA))
    found = [local_path(entry["path"]) for batch in batches for entry in read_entries(batch)]
    return [path for path in found if path is not None]


def read_ids(paths: Iterable[str]) -> list[int]:
    return sorted(value for path in paths for value in pq.read_table(path)["id"].to_pylist())


def next_ids(location: Path, root: Path, log: Path) -> list[int]:
    """What a stream would read when it is started again: of the pending files, and of those new to it."""
    stream = next(each for each in find_streams(str(root)) if each.log_directory == str(log))
    new = [path for path in named_files(location) if path not in stream.read and path not in stream.pending]
    return read_ids([*stream.pending, *new])
