"""How an input becomes another: by a few of these, at places and with values of a seeded choice.

set a byte, flip a bit        anything
write a number                where a length or a count may stand: 1, 2, 4 or 8 bytes, or a varint, of
                              values at which something changes
cut, drop, repeat, swap       pieces of it, so that what a length speaks of is not there, or is there twice
splice                        its begin and another input's end
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from distributedlog.protocol.primitives import uvarint

BYTES_MAX: Final = 4096
NUMBERS: Final = (
    0, 1, 2, 127, 128, 255, 256, 2**14, 2**15 - 1, 2**15, 2**16, 10_001, 50_001, 1_000_001, 2**21, 2**24,
    2**28, 2**31 - 1, 2**31, 2**32 - 1,
)  # fmt: skip
SIGNED: Final = (-1, -2, -128, -(2**15), -(2**31))

Mutation = Callable[[bytearray, Random], None]


def _set_byte(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(
            (0, 1, 0x7F, 0x80, 0xFE, 0xFF, random.randrange(256))
        )


def _flip_bit(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _write_number(data: bytearray, random: Random) -> None:
    size = random.choice((1, 2, 4, 4, 8))
    number = random.choice(SIGNED) if random.random() < 0.3 else random.choice(NUMBERS)
    at = random.randrange(len(data) + 1)
    data[at : at + size] = (number % (1 << (8 * size))).to_bytes(size, "big")


def _write_varint(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    width = random.choice((0, 1, 1, 2, 5))
    number = random.choice(NUMBERS)
    encoded = uvarint(number) if number < 2**32 else b"\xff" * random.randint(5, 10)
    data[at : at + width] = encoded


def _piece(data: bytearray, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 4, 8, 30, 200)))


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _drop(data: bytearray, random: Random) -> None:
    start, end = _piece(data, random)
    del data[start:end]


def _repeat(data: bytearray, random: Random) -> None:
    start, end = _piece(data, random)
    data[end:end] = data[start:end] * random.choice((1, 2, 10))


def _swap(data: bytearray, random: Random) -> None:
    first, second = _piece(data, random), _piece(data, random)
    (start, end), (from_, to) = sorted((first, second))
    if end <= from_:
        data[start:to] = data[from_:to] + data[end:from_] + data[start:end]


def _add_noise(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.choice((1, 2, 4, 16)))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    _set_byte, _set_byte, _flip_bit, _write_number, _write_number, _write_varint, _write_varint, _cut, _drop,
    _repeat, _swap, _add_noise,
)  # fmt: skip


def mutate(data: bytes, others: Sequence[bytes], random: Random) -> bytearray:
    """Another input, made of this one; at most BYTES_MAX long."""
    made = bytearray(data)
    if others and random.random() < 0.1:
        other = random.choice(others)
        made[random.randrange(len(made) + 1) :] = other[random.randrange(len(other) + 1) :]
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        random.choice(MUTATIONS)(made, random)
    del made[BYTES_MAX:]
    return made
