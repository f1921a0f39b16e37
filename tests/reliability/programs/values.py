"""Values that are unique and of some size: NAME-NUMBER, a space, and dots."""

from collections.abc import Iterator

from tests.reliability.history import Place

PADDING = b" " + b"." * 150


def values_of(name: str, topic: str, partitions: int) -> Iterator[tuple[Place, str]]:
    """What a producer of this name sends and where, for ever."""
    number = 0
    while True:
        yield Place(topic, number % partitions), f"{name}-{number}"
        number += 1


def as_bytes(value: str) -> bytes:
    return value.encode("ascii") + PADDING


def from_bytes(content: bytes) -> str:
    """Garbage comes back as something that nobody sent."""
    value, space, padding = content.partition(b" ")
    return value.decode("ascii", "replace") if space + padding == PADDING else repr(content)
