"""Printing what the files of a log hold, as rows of a table or as JSON objects.

One `type` of object for each kind of thing, the same names in every command:

    batch  record  unsound  index_entry  time_index_entry  aborted_transaction  producer  epoch
"""

import os
from typing import Any

from distributedlog.cli.output import (
    Column,
    TextTable,
    columns,
    json_bytes,
    print_json,
    print_line,
    show_bytes,
    show_size,
    show_time,
    warn,
)
from distributedlog.model.errors import DlogError
from distributedlog.records.control import read_end_marker
from distributedlog.records.layout import BatchHeader, Record
from distributedlog.storage.epochs import EpochEntry
from distributedlog.storage.producers import ProducerState
from distributedlog.storage.scan import LocatedBatch
from distributedlog.storage.txn_index import AbortedTransaction
from distributedlog.storage.verification.segment import UnsoundPlace

BATCH_COLUMNS = columns(
    "position>10 offsets<15 records>7 bytes>8 epoch>5 newest<24 codec<6 producer<12 flags<5"
)
RECORD_COLUMNS = columns("offset>10 time<24 key<16 value<32 headers<7")
KEY_COLUMNS = columns("offset>10 time<24 key<16")
INDEX_COLUMNS = columns("offset>12 position>12")
TIME_COLUMNS = columns("newest<24 offset>12")
ABORTED_COLUMNS = columns("producer>12 first>12 last>12 stable>12")
PRODUCER_COLUMNS = columns(
    "producer>12 epoch>5 sequences<12 offsets<12 last-heard<24 coordinator>11 open-since>10"
)
EPOCH_COLUMNS = columns("epoch>8 start-offset>12")


def batch_fields(batch: LocatedBatch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "size_bytes": header.size,
        "leader_epoch": header.leader_epoch,
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "codec": header.codec.name.lower(),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def control_fields(batch: LocatedBatch) -> dict[str, Any]:
    """Returns what a control batch says, as far as it ends a transaction."""
    try:
        marker = read_end_marker(batch.window, batch.at, batch.header)
    except DlogError:
        return {}  # a control record of another kind, or none left by compaction
    return {"control": marker.type.name.lower(), "coordinator_epoch": marker.coordinator_epoch}


def record_fields(record: Record, batch: LocatedBatch, *, keys_only: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    if batch.header.is_control:
        fields |= control_fields(batch)
    fields |= json_bytes("key", record.key)
    if not keys_only:
        fields |= json_bytes("value", record.value)
        fields["headers"] = [{"key": key, **json_bytes("value", value)} for key, value in record.headers]
    return fields


class Printer:
    """Rows for one file after another.  `where` goes into every JSON object: partition and file."""

    def __init__(self, *, as_json: bool, keys_only: bool = False) -> None:
        self._as_json = as_json
        self._keys_only = keys_only
        self._where: dict[str, str] = {}
        self._table = TextTable(())
        self._path = ""
        self._title = ""

    def begin_file(
        self, label: str | None, path: str, heading: tuple[Column, ...], *, is_shown_empty: bool = True
    ) -> None:
        name = os.path.basename(path)
        self._where = {"partition": label, "file": name} if label is not None else {"file": name}
        self._table = TextTable(heading, indent=2)
        self._path = path
        self._title = f"{label}/{name}  {show_size(os.path.getsize(path))}" if label else name
        if is_shown_empty:
            self._print_title()

    def begin_log(self, label: str | None, path: str, *, with_records: bool, is_shown_empty: bool) -> None:
        of_records = KEY_COLUMNS if self._keys_only else RECORD_COLUMNS
        heading = of_records if with_records else BATCH_COLUMNS
        self.begin_file(label, path, heading, is_shown_empty=is_shown_empty)

    def _print_title(self) -> None:
        title, self._title = self._title, ""
        if title and not self._as_json:
            print_line(title)

    def _row(self, *cells: object) -> None:
        self._print_title()
        self._table.row(*cells)

    def _json(self, kind: str, fields: dict[str, Any]) -> None:
        print_json({"type": kind, **self._where, **fields})

    # --- the log -------------------------------------------------------------------------------

    def batch(self, batch: LocatedBatch) -> None:
        if self._as_json:
            control = control_fields(batch) if batch.header.is_control else {}
            self._json("batch", batch_fields(batch) | control)
            return
        header = batch.header
        self._row(
            batch.position,
            _span(header.base_offset, header.last_offset),
            header.record_count,
            header.size,
            header.leader_epoch,
            show_time(header.max_timestamp),
            header.codec.name.lower(),
            f"{header.producer_id}/{header.producer_epoch}" if header.has_producer_id else "-",
            _flags(header, batch),
        )

    def record(self, record: Record, batch: LocatedBatch) -> None:
        if self._as_json:
            self._json("record", record_fields(record, batch, keys_only=self._keys_only))
            return
        control = control_fields(batch).get("control") if batch.header.is_control else None
        key = f"<{control}>" if control else show_bytes(record.key)
        cells: list[object] = [record.offset, show_time(record.timestamp_ms), key]
        if not self._keys_only:
            headers = ", ".join(f"{name}={show_bytes(value)}" for name, value in record.headers)
            cells += [show_bytes(record.value), headers or "-"]
        self._row(*cells)

    def unsound(self, place: UnsoundPlace) -> None:
        resumes = (
            f"sound batches go on at {place.resumes_at}"
            if place.resumes_at is not None
            else "nothing sound follows in this file"
        )
        if self._as_json:
            self._json("unsound", place._asdict())
        warn(f"{self._path} at position {place.position}: {place.reason}; {resumes}")

    # --- what is beside it ---------------------------------------------------------------------

    def index_entry(self, offset: int, position: int) -> None:
        if self._as_json:
            self._json("index_entry", {"offset": offset, "position": position})
        else:
            self._row(offset, position)

    def time_index_entry(self, timestamp_ms: int, offset: int) -> None:
        if self._as_json:
            self._json("time_index_entry", {"timestamp_ms": timestamp_ms, "offset": offset})
        else:
            self._row(show_time(timestamp_ms), offset)

    def aborted(self, entry: AbortedTransaction) -> None:
        if self._as_json:
            self._json("aborted_transaction", entry._asdict())
        else:
            self._row(*entry)

    def producer(self, state: ProducerState) -> None:
        last = state.batches[-1] if state.batches else None
        open_since = state.transaction_first_offset if state.has_open_transaction else None
        if self._as_json:
            self._json(
                "producer",
                {
                    "producer_id": state.producer_id,
                    "producer_epoch": state.epoch,
                    "first_sequence": last.first_sequence if last else None,
                    "last_sequence": last.last_sequence if last else None,
                    "first_offset": last.first_offset if last else None,
                    "last_offset": last.last_offset if last else None,
                    "last_timestamp_ms": state.last_timestamp,
                    "coordinator_epoch": state.coordinator_epoch,
                    "transaction_first_offset": open_since,
                    "batches_kept": len(state.batches),
                },
            )
            return
        self._row(
            state.producer_id,
            state.epoch,
            _span(last.first_sequence, last.last_sequence) if last else None,
            _span(last.first_offset, last.last_offset) if last else None,
            show_time(state.last_timestamp),
            state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
            open_since,
        )

    def epoch(self, entry: EpochEntry) -> None:
        if self._as_json:
            self._json("epoch", entry._asdict())
        else:
            self._row(*entry)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _flags(header: BatchHeader, batch: LocatedBatch) -> str:
    flags = []
    if header.is_control:
        flags.append(control_fields(batch).get("control", "control"))
    elif header.is_transactional:
        flags.append("transactional")
    if header.is_log_append_time:
        flags.append("append time")
    if header.has_delete_horizon:
        flags.append("delete horizon")
    return ", ".join(flags) or "-"
