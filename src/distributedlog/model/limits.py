"""What a batch may ask of whoever opens it.  Apart from `config`: clients need nothing else of that."""

from typing import Final, NamedTuple

MIB: Final = 1024 * 1024


class RecordLimits(NamedTuple):
    """How much one batch may ask of the process that opens it.  Checked before anything is allocated."""

    batch_bytes_max: int = 1024 * MIB
    decompressed_bytes_max: int = 256 * MIB
    records_max: int = 10_000_000
    headers_per_record_max: int = 100_000
