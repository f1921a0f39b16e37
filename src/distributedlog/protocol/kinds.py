"""The kinds of field the protocol has, and how each looks on the wire.

    kind                 classic versions              flexible versions
    INT8 … INT64         big-endian, two's complement  the same
    UINT16 UINT32        big-endian                    the same
    FLOAT64 BOOL UUID    8, 1, 16 bytes                the same
    STRING               length i16 | UTF-8            length + 1 uvarint | UTF-8
    BYTES RECORDS        length i32 | bytes            length + 1 uvarint | bytes
    array(kind)          count i32 | elements          count + 1 uvarint | elements
    struct(Class)        its fields                    its fields | tagged fields
    nullable(kind)       length or count -1            uvarint 0
    nullable(struct)     i8 -1, or i8 1 | struct       the same; tagged, null is i8 0, and is always written
    optional(struct)     (only tagged)                 the struct; None is not written at all

A kind is only a description.  `Kind[T]` says which Python type a field of it has, so that a declaration
whose annotation disagrees with its kind does not pass the type checker.

`RECORDS` are payload: decoding gives a view of the input, and encoding hands the object on as a part of its
own, uncopied.  Such an object need not be bytes: whatever has a length in bytes may stand for them (a region
of a file, which the server sends without reading it).
"""

from collections.abc import Sized
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from distributedlog.model.buffers import Buffer
from distributedlog.model.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from distributedlog.protocol.schema import Struct

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

Payload = Buffer | Sized


class Kind(Generic[T]):
    """What a field holds.  The classes below are all there are; one is told from another by identity."""

    __slots__ = ()


class Fixed(Kind[T]):
    """A number or id of fixed size: `code` is its letter in `struct`."""

    __slots__ = ("code", "name", "size_bytes", "zero")

    def __init__(self, name: str, code: str, size_bytes: int, zero: T) -> None:
        self.name = name
        self.code = code
        self.size_bytes = size_bytes
        self.zero = zero


class Text(Kind[str]):
    __slots__ = ()


class Blob(Kind[bytes]):
    __slots__ = ()


class Records(Kind[Any]):
    """A declaration says whether its records are bytes or any payload: what is received is bytes."""

    __slots__ = ()


class Nested(Kind[S]):
    __slots__ = ("of",)

    def __init__(self, of: type[S]) -> None:
        self.of = of


class Array(Kind[list[T]]):
    __slots__ = ("of",)

    def __init__(self, of: Kind[T]) -> None:
        self.of = of


class Nullable(Kind[T | None]):
    """`None` is allowed from version `since` on.  Unmarked: it stands for a tagged field that is left out."""

    __slots__ = ("is_marked", "of", "since")

    def __init__(self, of: Kind[T], since: int, *, is_marked: bool = True) -> None:
        self.of = of
        self.since = since
        self.is_marked = is_marked


TAGGED_NULL: Final = 0
"""The mark of a nullable struct that is null, in a tagged field; elsewhere it is -1."""

INT8: Kind[int] = Fixed("int8", "b", 1, 0)
INT16: Kind[int] = Fixed("int16", "h", 2, 0)
INT32: Kind[int] = Fixed("int32", "i", 4, 0)
INT64: Kind[int] = Fixed("int64", "q", 8, 0)
UINT16: Kind[int] = Fixed("uint16", "H", 2, 0)
UINT32: Kind[int] = Fixed("uint32", "I", 4, 0)
FLOAT64: Kind[float] = Fixed("float64", "d", 8, 0.0)
BOOL: Kind[bool] = Fixed("bool", "?", 1, False)
UUID: Kind[Uuid] = Fixed("uuid", "16s", 16, ZERO_UUID)
STRING: Kind[str] = Text()
BYTES: Kind[bytes] = Blob()
RECORDS: Kind[Any] = Records()


@overload
def array(of: Kind[T]) -> Kind[list[T]]: ...
@overload
def array(of: type[S]) -> Kind[list[S]]: ...
def array(of: Kind[T] | type[S]) -> Kind[list[T]] | Kind[list[S]]:
    return Array(of) if isinstance(of, Kind) else Array(Nested(of))


def struct(of: type[S]) -> Kind[S]:
    return Nested(of)


def nullable(of: Kind[T], *, since: int = 0) -> Kind[T | None]:
    return Nullable(of, since)


def optional(of: type[S]) -> Kind[S | None]:
    return Nullable(Nested(of), 0, is_marked=False)
