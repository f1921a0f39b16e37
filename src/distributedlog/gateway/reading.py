"""Fetched batches turned into records, a bounded slice at a time.

    bytes of a partition ──► batch ──► decompressed section ──► slice of records ──► the next slice ...

A batch may hold millions of records, and its reader may stop reading; so no batch is decoded as a whole.  A
step decodes about as many bytes as one response holds, and at most SLICE_RECORDS records.  A batch is
decompressed as a whole, since no codec of Kafka's can be entered in the middle: in a thread, up to
SECTION_BYTES_MAX, and only while the budget of all streams allows it.

    is given to the reader              is passed over
    records from the asked offset on    records before it, in the batch that holds it
                                        control batches; batches of aborted transactions

`next_offset` is where to go on: everything before it was given or passed over.  So a reader may be closed at
any time and another made from there.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final

from distributedlog.client.fetcher import AbortedFilter
from distributedlog.gateway.budget import ByteBudget
from distributedlog.model.buffers import Buffer
from distributedlog.model.config import MIB
from distributedlog.model.errors import DlogError, InvalidRecordError, RecordTooLargeError
from distributedlog.model.limits import RecordLimits
from distributedlog.protocol.messages.fetch import AbortedTransaction
from distributedlog.records.batch import BatchHeader, check_batch, whole_batches
from distributedlog.records.compression import Codec
from distributedlog.records.kernel import decode_records
from distributedlog.records.record import Record, decompress_records

SLICE_RECORDS: Final = 500
SECTION_BYTES_MAX: Final = 64 * MIB
"""The bytes of one batch, decompressed.  Kafka's clients take more; a gateway has many callers."""
LIMITS: Final = RecordLimits(batch_bytes_max=SECTION_BYTES_MAX, decompressed_bytes_max=SECTION_BYTES_MAX)
_LENGTH_BYTES_MAX: Final = 5


class ChunkReader:
    """A reader of the bytes that one fetch brought of one partition.  Close it: it may hold a part of the
    budget."""

    def __init__(
        self,
        data: bytes,
        offset: int,
        aborted: Iterable[AbortedTransaction],
        budget: ByteBudget,
        threads: Executor,
    ) -> None:
        self.next_offset = offset
        self._data = data
        self._has_begun = False
        self._aborted = AbortedFilter(aborted)
        self._batches = whole_batches(data)
        self._budget = budget
        self._threads = threads
        self._held_bytes = 0
        self._header: BatchHeader | None = None
        self._section: Buffer = b""
        self._section_at = 0
        self._records_left = 0
        self._error: DlogError | None = None

    async def next(self, bytes_max: int, records_max: int = SLICE_RECORDS) -> list[Record]:
        """Records of at most so many bytes, at least one, of one batch or of several; none: there are no
        more.  What is unsound is raised when all that is before it was given."""
        if self._error is not None:
            raise self._error
        records: list[Record] = []
        try:
            await self._gather(records, bytes_max, min(records_max, SLICE_RECORDS))
        except DlogError as error:
            self._error = error
            if not records:
                raise
        return records

    async def _gather(self, records: list[Record], bytes_left: int, records_max: int) -> None:
        while len(records) < records_max:
            if self._header is None and not await self._open_batch():
                return
            if records and self._record_end(self._section_at) - self._section_at > bytes_left:
                return
            found, found_bytes = self._slice(bytes_left, records_max - len(records))
            records += found
            if found:
                bytes_left -= found_bytes
            else:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Lets go of everything but `next_offset`."""
        self._data = b""
        self._batches = whole_batches(b"")
        self._close_batch()

    # --- batches -------------------------------------------------------------------------------

    async def _open_batch(self) -> bool:
        """The next batch that has something for the reader."""
        for start, header in self._batches:
            check_batch(self._data, start, limits=LIMITS)
            self._has_begun = True
            is_wanted = self._aborted.passes(self._data, start, header)
            if is_wanted and header.record_count > 0 and header.next_offset > self.next_offset:
                await self._open_section(start, header)
                return True
            self.next_offset = max(self.next_offset, header.next_offset)
            await asyncio.sleep(0)
        if not self._has_begun and self._data:  # a fetch may end within a batch, but not within its first
            raise RecordTooLargeError(f"the batch at offset {self.next_offset} did not come whole")
        return False

    async def _open_section(self, start: int, header: BatchHeader) -> None:
        if header.codec is Codec.NONE:
            self._section = decompress_records(self._data, start, header, LIMITS)
        else:
            await self._budget.take(SECTION_BYTES_MAX)
            self._held_bytes = SECTION_BYTES_MAX
            self._section = await asyncio.get_running_loop().run_in_executor(
                self._threads, decompress_records, self._data, start, header, LIMITS
            )
            self._keep_bytes(len(self._section))
        self._header = header
        self._section_at = 0
        self._records_left = header.record_count

    def _keep_bytes(self, held_bytes: int) -> None:
        spare_bytes, self._held_bytes = self._held_bytes - held_bytes, held_bytes
        if spare_bytes:
            self._budget.give_back(spare_bytes)

    def _close_batch(self) -> None:
        self._header = None
        self._section = b""
        self._keep_bytes(0)

    # --- slices --------------------------------------------------------------------------------

    def _slice(self, bytes_max: int, records_max: int) -> tuple[list[Record], int]:
        """The next records of the batch, without those before the asked offset, and the bytes they took."""
        header = self._header
        assert header is not None
        start, count = self._section_at, 0
        end = start
        while count < min(records_max, self._records_left):
            record_end = self._record_end(end)
            if count and record_end - start > bytes_max:
                break
            end, count = record_end, count + 1
        section = memoryview(self._section)[start:end]
        found = decode_records(section, header._replace(record_count=count), LIMITS.headers_per_record_max)
        if found and found[0].offset < self.next_offset:
            found = [record for record in found if record.offset >= self.next_offset]
        self._section_at = end
        self._records_left -= count
        if found:
            self.next_offset = found[-1].offset + 1
        if self._records_left == 0:
            self._end_batch(header)
        return found, end - start

    def _record_end(self, at: int) -> int:
        section = self._section
        length, shift = 0, 0
        for at_byte in range(at, min(at + _LENGTH_BYTES_MAX, len(section))):
            byte = section[at_byte]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                end = at_byte + 1 + (length >> 1)
                if length & 1 or end > len(section):
                    break
                return end
            shift += 7
        raise InvalidRecordError(f"a record at byte {at} of a batch runs past the end of it")

    def _end_batch(self, header: BatchHeader) -> None:
        surplus_bytes = len(self._section) - self._section_at
        self._close_batch()
        if surplus_bytes:
            raise InvalidRecordError(f"{surplus_bytes} bytes follow the last record of a batch")
        self.next_offset = max(self.next_offset, header.next_offset)
