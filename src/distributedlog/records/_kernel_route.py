# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, embedsignature=True
"""The inner loops that say where rows go: a partition for each key, and the rows in the order of partitions.

| part | used by |
|---|---|
| `Router` | `arrow_write` |

Compiled by Cython or run as it stands; the rules for both forms stand in `_kernel`.  The hash is murmur2
with Kafka's seed, its sign bit cleared, as in `client/partitioner`: both must put a key in the same place.
"""

from typing import TYPE_CHECKING

from distributedlog.model.errors import InvalidRecordError

if TYPE_CHECKING:
    from distributedlog.records import _shim as cython
else:
    try:
        import cython
    except ImportError:
        from distributedlog.records import _shim as cython

COMPILED: bool = cython.compiled

_SEED = cython.declare(cython.ulonglong, 0x9747B28C)
_MULTIPLIER = cython.declare(cython.ulonglong, 0x5BD1E995)
_UINT32 = cython.declare(cython.ulonglong, 0xFFFF_FFFF)


@cython.final
@cython.cclass
class Router:
    """Gives rows their partitions, and then an order in which each partition's rows stand together.

    `partitions` has an int for each row: the partition it is to go to, or -1 where its key decides.
    """

    partitions = cython.declare("int[::1]")
    offsets = cython.declare("const int[::1]")
    data = cython.declare("const unsigned char[::1]")
    validity = cython.declare("const unsigned char[::1]")
    rows: cython.Py_ssize_t
    key_rows: cython.Py_ssize_t
    data_bytes: cython.Py_ssize_t
    first_bit: cython.Py_ssize_t
    has_nulls: cython.bint
    count: cython.longlong

    def __init__(
        self,
        partitions: memoryview,
        partition_count: int,
        key_offsets: memoryview,
        key_data: memoryview,
        key_validity: memoryview,
        first_bit: int,
    ) -> None:
        """The key column may have no rows: then no row has a key."""
        self.partitions = partitions
        self.offsets = key_offsets
        self.data = key_data
        self.validity = key_validity
        self.rows = len(partitions)
        self.key_rows = len(key_offsets) - 1
        self.data_bytes = len(key_data)
        self.first_bit = first_bit
        self.has_nulls = len(key_validity) > 0
        self.count = partition_count
        if partition_count < 1:
            raise ValueError("a topic has at least one partition")
        if self.has_nulls and (first_bit < 0 or len(key_validity) * 8 < first_bit + self.key_rows):
            raise ValueError("the bitmap of a column is shorter than the column")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def has_key(self, row: cython.Py_ssize_t) -> cython.bint:
        bit: cython.Py_ssize_t = row + self.first_bit
        if row >= self.key_rows:
            return False
        return not self.has_nulls or (self.validity[bit >> 3] >> (bit & 7)) & 1 == 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def hashed(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
        """murmur2 of the bytes from `start` to `end`, which are within the data."""
        length: cython.ulonglong = end - start
        state: cython.ulonglong = (_SEED ^ length) & _UINT32
        word: cython.ulonglong
        shift: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t = start
        while end - at >= 4:
            word = self.data[at]
            word |= (self.data[at + 1] << 8) | (self.data[at + 2] << 16)
            word |= cython.cast(cython.ulonglong, self.data[at + 3]) << 24
            word = word * _MULTIPLIER & _UINT32
            word ^= word >> 24
            word = word * _MULTIPLIER & _UINT32
            state = (state * _MULTIPLIER & _UINT32) ^ word
            at += 4
        if at < end:
            while at < end:
                state ^= self.data[at] << shift
                shift += 8
                at += 1
            state = state * _MULTIPLIER & _UINT32
        state ^= state >> 13
        state = state * _MULTIPLIER & _UINT32
        return state ^ (state >> 15)

    def place(self, keyless_first: int, keyless_rows_each: int) -> int:
        """Fills in the partitions that are open; how many of the rows had neither a partition nor a key.

        Those go to `keyless_first`, and after each `keyless_rows_each` of them to the next partition.
        """
        row: cython.Py_ssize_t
        start: cython.Py_ssize_t
        end: cython.Py_ssize_t
        keyless: cython.longlong = 0
        first: cython.longlong = keyless_first
        rows_each: cython.longlong = max(1, keyless_rows_each)
        chosen: cython.longlong
        for row in range(self.rows):
            chosen = self.partitions[row]
            if chosen >= 0:
                if chosen >= self.count:
                    raise InvalidRecordError(f"row {row} is for partition {chosen} of {self.count}")
                continue
            if self.has_key(row):
                start, end = self.offsets[row], self.offsets[row + 1]
                if start < 0 or end < start or end > self.data_bytes:
                    raise InvalidRecordError(f"row {row} of an Arrow column points outside its data")
                chosen = (self.hashed(start, end) & 0x7FFF_FFFF) % self.count
            else:
                chosen = (first + keyless // rows_each) % self.count
                keyless += 1
            self.partitions[row] = chosen
        return keyless

    def order(self, out: memoryview) -> list[tuple[int, int]]:
        """Writes the rows' numbers into `out` (ints), partition after partition, each in its rows' order.

        The partitions that have rows, each with the end of its rows in `out`.
        """
        ordered: Order = Order(out, self.rows, self.count)
        row: cython.Py_ssize_t
        for row in range(self.rows):
            ordered.count_in(self.partitions[row])
        found = ordered.settle()
        for row in range(self.rows):
            ordered.put(self.partitions[row], row)
        return found


@cython.final
@cython.cclass
class Order:
    """A sort by counting: first how many rows each partition has, then where each row stands."""

    out = cython.declare("int[::1]")
    ends = cython.declare("long long[::1]")
    count: cython.longlong
    rows: cython.Py_ssize_t

    def __init__(self, out: memoryview, rows: int, partition_count: int) -> None:
        self.out = out
        self.rows = rows
        self.count = partition_count
        self.ends = memoryview(bytearray(8 * partition_count)).cast("q")
        if len(out) < rows:
            raise ValueError("there is not room for every row")

    @cython.cfunc
    @cython.exceptval(-1)
    def count_in(self, partition: cython.longlong) -> cython.bint:
        if partition < 0 or partition >= self.count:
            raise InvalidRecordError(f"a row is for partition {partition} of {self.count}")
        self.ends[partition] += 1
        return True

    @cython.ccall
    def settle(self) -> list:  # type: ignore[type-arg]
        """Counts become the places of the first rows."""
        found = []
        partition: cython.longlong
        rows: cython.longlong
        total: cython.longlong = 0
        for partition in range(self.count):
            rows = self.ends[partition]
            self.ends[partition] = total
            total += rows
            if rows:
                found.append((partition, total))
        return found

    @cython.cfunc
    @cython.exceptval(-1)
    def put(self, partition: cython.longlong, row: cython.Py_ssize_t) -> cython.bint:
        place: cython.longlong = self.ends[partition]
        if place >= self.rows:
            raise InvalidRecordError("a column changed while it was read")
        self.out[place] = row
        self.ends[partition] = place + 1
        return True
