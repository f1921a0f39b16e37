"""What is checked of a message that came from another node, before anything is built of it.

A message is bounded in bytes before it is parsed.  A few bytes can still stand for an item that takes a
hundred times as much as a Python object, so the items of a message are counted against one budget, however
they are nested.  Numbers need no check here: protobuf gives none beyond the width of its field.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import Uuid

ITEMS_MAX = 250_000
"""A request about every partition of the largest cluster (16,000) with its replicas fits several times."""
TEXT_LENGTH_MAX = 65_536

M = TypeVar("M")
T = TypeVar("T")
_ERROR_CODES = {int(code): code for code in ErrorCode}


class Budget:
    """How many items one message may still have."""

    __slots__ = ("_left",)

    def __init__(self, items_max: int = ITEMS_MAX) -> None:
        self._left = items_max

    def each(self, items: Collection[M], decode: Callable[[M], T]) -> tuple[T, ...]:
        """The items decoded; counted before the first one is."""
        self._take(len(items))
        return tuple(map(decode, items))

    def numbers(self, items: Collection[int]) -> tuple[int, ...]:
        self._take(len(items))
        return tuple(items)

    def _take(self, count: int) -> None:
        if count > self._left:
            raise MalformedMessageError(f"a message has more than {ITEMS_MAX} items")
        self._left -= count


def text(value: str) -> str:
    if len(value) > TEXT_LENGTH_MAX:
        raise MalformedMessageError(
            f"a text of {len(value)} characters is over the {TEXT_LENGTH_MAX} allowed"
        )
    return value


def uuid(value: bytes) -> Uuid:
    if len(value) != 16:
        raise MalformedMessageError(f"an id has {len(value)} bytes instead of 16")
    return Uuid(value)


def error_code(number: int) -> ErrorCode:
    """A code that a newer node has and we have not is still an error, and not success."""
    return _ERROR_CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)
