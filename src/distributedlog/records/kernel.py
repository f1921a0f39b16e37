"""The record kernel as it was found: compiled, or the same source interpreted.

`FORM` says which.  `DLOG_KERNEL=interpreted` in the environment asks for the source although a compiled
kernel is installed; the two give the same results, byte for byte and error for error.
"""

from distributedlog.records._kernel import COMPILED as _READS_COMPILED
from distributedlog.records._kernel import (
    BinarySink,
    ColumnWriter,
    decode_records,
    find_keyless,
    find_spans,
    measure_columns,
    rebase_timestamps,
)
from distributedlog.records._kernel_check import ABSENT, UNSOUND, count_keyless, find_timestamp
from distributedlog.records._kernel_check import COMPILED as _CHECKS_COMPILED
from distributedlog.records._kernel_scan import COMPILED as _SCANS_COMPILED
from distributedlog.records._kernel_scan import (
    check_replicated_batches,
    check_whole_batch,
    place_batch,
    read_batch_header,
    scan_batches,
)
from distributedlog.records._kernel_write import COMPILED as _WRITES_COMPILED
from distributedlog.records._kernel_write import Ranges, RowEncoder, encode_records, new_record, varint_bytes

_IS_COMPILED = _READS_COMPILED and _CHECKS_COMPILED and _SCANS_COMPILED and _WRITES_COMPILED
FORM = "compiled" if _IS_COMPILED else "interpreted"

__all__ = [
    "ABSENT",
    "FORM",
    "UNSOUND",
    "BinarySink",
    "ColumnWriter",
    "Ranges",
    "RowEncoder",
    "check_replicated_batches",
    "check_whole_batch",
    "count_keyless",
    "decode_records",
    "encode_records",
    "find_keyless",
    "find_spans",
    "find_timestamp",
    "measure_columns",
    "new_record",
    "place_batch",
    "read_batch_header",
    "rebase_timestamps",
    "scan_batches",
    "varint_bytes",
]
