"""Records in files, for `dlog topic export` and `import`: written, and read again the same.

| format    | a record is                                                   | named           |
|-----------|---------------------------------------------------------------|-----------------|
| `jsonl`   | a line of JSON, as `consume -o json` prints it                | `.jsonl .json`  |
| `jsonl.gz`| the same, gzip over it                                        | `.jsonl.gz .gz` |
| `parquet` | a row: partition, offset, timestamp_ms, key, value, headers   | `.parquet`      |

In JSON, bytes that are UTF-8 are text and others base64, with a field beside them that says so; so nothing is
lost.  In Parquet keys and values are binary, headers a list of (key, value).  Parquet needs pyarrow.

A file appears under its name when it is whole: until then it is NAME.part, which a crash or Ctrl-C leaves.
Reading keeps one line, or one group of rows, in memory; a line is bounded.
"""

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final, Protocol

import click

from distributedlog.cli.exit_codes import AlreadyExistsError, NotFoundError
from distributedlog.cli.output import json_line
from distributedlog.cli.records.lines import LINE_BYTES_MAX, InputError
from distributedlog.cli.records.parsing import Addressed, parse_json, record_fields
from distributedlog.cli.standard_output import check_stdout_open
from distributedlog.model.errors import InvalidRecordError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, Record

FORMATS: Final = ("jsonl", "jsonl.gz", "parquet")
STANDARD_STREAM: Final = "-"
PART_SUFFIX: Final = ".part"
ROWS_PER_GROUP: Final = 20_000
GROUP_BYTES_MAX: Final = 32 * 1024 * 1024
GZIP_LEVEL: Final = 6
_SUFFIXES: Final = {
    ".jsonl.gz": "jsonl.gz",
    ".json.gz": "jsonl.gz",
    ".gz": "jsonl.gz",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


class RecordWriter(Protocol):
    def write(self, partition: TopicPartition, records: Sequence[Record]) -> None: ...
    def finish(self) -> None:
        """Everything is in the stream."""


def format_of(path: str, given: str | None) -> str:
    """Returns the format that was named, or that of the file's name."""
    if given is not None:
        return given
    found = next((kind for suffix, kind in _SUFFIXES.items() if path.lower().endswith(suffix)), None)
    if found is None and path != STANDARD_STREAM:
        raise click.UsageError(
            f"{path} does not say by its name what is in it: name it .jsonl, .jsonl.gz or .parquet, or say "
            "--format"
        )
    return found or "jsonl"


# --- writing -----------------------------------------------------------------------------------


@contextlib.contextmanager
def writing(path: str, kind: str, *, replace: bool = False) -> Iterator[RecordWriter]:
    """The file has its name once the block has ended without an error."""
    if path == STANDARD_STREAM:
        writer = _writer(sys.stdout.buffer, kind)
        yield writer
        writer.finish()
        sys.stdout.buffer.flush()
        return
    if os.path.isdir(path):
        raise click.UsageError(f"{path} is a directory: name a file in it")
    if os.path.exists(path) and not replace:
        raise AlreadyExistsError(f"{path} is there already: name another file, or add --force")
    with _part_of(path) as stream:
        writer = _writer(stream, kind)
        yield writer
        writer.finish()
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + PART_SUFFIX, path)
    _sync_directory(os.path.dirname(os.path.abspath(path)))


def check_stdout(kind: str) -> None:
    """Refuses a stdout that is closed, and a terminal for what is not text."""
    check_stdout_open()
    if kind != "jsonl" and sys.stdout.isatty():
        raise click.UsageError(f"a terminal cannot show {kind}: name a file, or lead stdout into one")


def check_directory_of(path: str) -> None:
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        raise NotFoundError(f"{path} cannot be written: there is no directory {directory}")


def _part_of(path: str) -> IO[bytes]:
    """Writes to a file that has its name only when it is whole.  Errors name what the user has named."""
    check_directory_of(path)
    try:
        return open(path + PART_SUFFIX, "wb")
    except OSError as error:
        error.filename = path
        raise


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _writer(stream: IO[bytes], kind: str) -> RecordWriter:
    if kind == "parquet":
        return _ParquetWriter(stream)
    return _JsonWriter(stream, compress=kind == "jsonl.gz")


class _JsonWriter:
    def __init__(self, stream: IO[bytes], *, compress: bool) -> None:
        self._gzip = (
            gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=GZIP_LEVEL, mtime=0)
            if compress
            else None
        )
        self._write = stream.write if self._gzip is None else self._gzip.write

    def write(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        lines = [json_line(record_fields(partition, record)) for record in records]
        if lines:
            self._write(("\n".join(lines) + "\n").encode())

    def finish(self) -> None:
        if self._gzip is not None:
            self._gzip.close()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise click.UsageError(
            "parquet needs pyarrow: install distributedlog[arrow], or export as jsonl"
        ) from None
    return pyarrow


class _ParquetWriter:
    def __init__(self, stream: IO[bytes]) -> None:
        self._arrow = _pyarrow()
        arrow = self._arrow
        header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
        self._schema = arrow.schema(
            [
                arrow.field("partition", arrow.int32(), nullable=False),
                arrow.field("offset", arrow.int64(), nullable=False),
                arrow.field("timestamp_ms", arrow.int64(), nullable=False),
                ("key", arrow.binary()),
                ("value", arrow.binary()),
                arrow.field("headers", arrow.list_(header), nullable=False),
            ]
        )
        self._file = arrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[tuple[int, Record]] = []
        self._bytes = 0

    def write(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        for record in records:
            self._rows.append((partition.partition, record))
            self._bytes += len(record.key or b"") + len(record.value or b"")
            if len(self._rows) >= ROWS_PER_GROUP or self._bytes >= GROUP_BYTES_MAX:
                self._flush()

    def _flush(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        if not rows:
            return
        columns = {
            "partition": [partition for partition, _ in rows],
            "offset": [record.offset for _, record in rows],
            "timestamp_ms": [record.timestamp_ms for _, record in rows],
            "key": [record.key for _, record in rows],
            "value": [record.value for _, record in rows],
            "headers": [
                [{"key": each.key, "value": each.value} for each in record.headers] for _, record in rows
            ],
        }
        self._file.write_table(self._arrow.Table.from_pydict(columns, schema=self._schema))

    def finish(self) -> None:
        self._flush()
        self._file.close()


# --- reading -----------------------------------------------------------------------------------


def reading(path: str, kind: str) -> Iterator[Addressed]:
    """The records of a file, with the partitions they were in.  `InputError` at the first that is none."""
    if kind == "parquet":
        yield from _read_parquet(path)
        return
    for number, line in enumerate(_lines(path, compressed=kind == "jsonl.gz"), start=1):
        try:
            yield parse_json(line)
        except InvalidRecordError as error:
            raise InputError(f"{path}, line {number}: {error}") from error


def _lines(path: str, *, compressed: bool) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        if path == STANDARD_STREAM:
            stream: IO[bytes] = sys.stdin.buffer
        else:
            stream = stack.enter_context(open(path, "rb"))
        if compressed:
            stream = stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=stream)))
        number = 0
        try:
            while line := stream.readline(LINE_BYTES_MAX + 2):
                number += 1
                if len(line) > LINE_BYTES_MAX + 1:
                    raise InputError(f"{path}, line {number} has more than {LINE_BYTES_MAX} bytes")
                yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path} is not whole behind line {number}: {error}") from error


def _read_parquet(path: str) -> Iterator[Addressed]:
    arrow = _pyarrow()
    if path == STANDARD_STREAM:
        raise click.UsageError("parquet cannot be read from a pipe: name the file")
    try:
        file = arrow.parquet.ParquetFile(path)
    except (arrow.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{path} is no Parquet file: {error}") from error
    with file:
        missing = {"key", "value"} - set(file.schema_arrow.names)
        if missing:
            raise InputError(f"{path} has no column {', '.join(sorted(missing))}")
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
            for row in batch.to_pylist():
                yield _from_row(row, path)


def _from_row(row: dict[str, Any], path: str) -> Addressed:
    try:
        headers = tuple(
            Header(_as_text(each["key"]), _as_bytes(each["value"])) for each in row.get("headers") or ()
        )
        timestamp_ms = row.get("timestamp_ms", -1)
        record = Record(
            _as_bytes(row["value"]),
            _as_bytes(row["key"]),
            headers,
            -1 if timestamp_ms is None else _as_number(timestamp_ms),
        )
        partition = row.get("partition")
        return Addressed(record, None if partition is None else _as_number(partition))
    except (TypeError, KeyError) as error:
        raise InputError(f"{path} has a row that is no record: {error}") from error


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no header's key")
    return value


def _as_number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _as_bytes(value: object) -> bytes | None:
    """Columns of text will do as well."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{value!r} is neither bytes nor text")
