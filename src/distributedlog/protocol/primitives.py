"""What compiled codecs call: varints, tagged sections, and the refusals.

An unsigned varint has seven bits a byte, the lowest first; the high bit says that another byte follows.  32
bits take at most five bytes, of which the last may hold only four bits.  A tagged section is

    count uvarint | (tag uvarint | size uvarint | size bytes) each, tags ascending and each once

Limits: every count and size is compared with the bytes that are left before anything is made of it, and the
elements of one message are counted together (see `ELEMENTS_MAX`), so that decoding takes time and memory in
proportion to the frame, whatever the frame claims.
"""

from collections.abc import Callable
from typing import Final, NoReturn

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError

ELEMENTS_MAX: Final = 1_000_000
"""Elements of all arrays and unknown tags of one message together, and so of any one array."""
TAGGED_FIELDS_MAX: Final = 10_000
UVARINT_MAX: Final = 2**32 - 1

SMALL_UVARINTS: Final = tuple(bytes([number]) for number in range(128))
"""The varints of one byte: nearly all lengths and counts there are."""


def uvarint(number: int) -> bytes:
    if not 0 <= number <= UVARINT_MAX:
        raise MalformedMessageError(f"{number} is no unsigned number of 32 bits")
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def rest_of_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The number whose first byte, `first`, had its high bit set; `position` is behind that byte."""
    number = first & 127
    for shift in (7, 14, 21):
        byte = buffer[position]
        position += 1
        if byte < 128:
            return number | byte << shift, position
        number |= (byte & 127) << shift
    byte = buffer[position]
    if byte > 15:
        raise MalformedMessageError("a varint has more than 32 bits")
    return number | byte << 28, position + 1


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return rest_of_uvarint(buffer, position + 1, first)


def append_tags(append: Callable[[bytes], None], tagged: list[tuple[int, bytes]]) -> None:
    """Writes a tagged section, sorted as readers demand."""
    if len(tagged) > TAGGED_FIELDS_MAX:
        raise MalformedMessageError(f"{len(tagged)} tagged fields are more than {TAGGED_FIELDS_MAX}")
    tagged.sort(key=lambda each: each[0])
    append(uvarint(len(tagged)))
    before = -1
    for tag, data in tagged:
        if tag == before:
            raise MalformedMessageError(f"tag {tag} is given twice")
        before = tag
        append(uvarint(tag))
        append(uvarint(len(data)))
        append(data)


def read_tag_count(
    buffer: Buffer, position: int, limit: int, first: int, budget: int
) -> tuple[int, int, int]:
    """Returns how many tagged fields follow, where, and what they leave of the budget of elements."""
    count = first
    if first > 127:
        count, position = rest_of_uvarint(buffer, position, first)
    if count > TAGGED_FIELDS_MAX or count > budget or 2 * count > limit - position:
        raise MalformedMessageError(
            f"{count} tagged fields are more than allowed, or than {limit - position} bytes hold"
        )
    return count, position, budget - count


def read_tag(buffer: Buffer, position: int, limit: int, before: int) -> tuple[int, int, int]:
    """The tag, where its data begins, and where it ends."""
    tag, position = read_uvarint(buffer, position)
    if tag <= before:
        raise MalformedMessageError(f"tag {tag} follows tag {before}")
    size, position = read_uvarint(buffer, position)
    if size > limit - position:
        raise MalformedMessageError(f"tag {tag} has {size} bytes, of which {limit - position} are there")
    return tag, position, position + size


def read_unknown_tags(
    buffer: Buffer, position: int, limit: int, first: int, budget: int
) -> tuple[tuple[tuple[int, bytes], ...], int, int]:
    """A tagged section of which no field is known, its end, and what is left of the budget."""
    count, position, budget = read_tag_count(buffer, position, limit, first, budget)
    unknown = []
    tag = -1
    for _ in range(count):
        tag, position, end = read_tag(buffer, position, limit, tag)
        unknown.append((tag, bytes(buffer[position:end])))
        position = end
    return tuple(unknown), position, budget


def refuse_length(name: str, length: int, left_bytes: int) -> NoReturn:
    if length < 0:
        raise MalformedMessageError(f"{name} has the impossible length {length}")
    raise MalformedMessageError(f"{name} has {length} bytes, of which {left_bytes} are there")


def refuse_count(name: str, count: int, left_bytes: int) -> NoReturn:
    if count < 0:
        raise MalformedMessageError(f"{name} has the impossible count {count}")
    raise MalformedMessageError(
        f"{name} has {count} elements: more than allowed, or than {left_bytes} bytes hold"
    )


def refuse_tag_size(name: str) -> NoReturn:
    raise MalformedMessageError(f"the tagged field {name} does not have the size it claims")
