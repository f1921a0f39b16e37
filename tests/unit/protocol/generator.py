"""Random messages from our own schemas: any message, any version, the same ones for the same seed.

Only what a version carries is set, so that a message equals itself after a round trip.  A tagged field either
keeps its default or is made to differ from it, since only then is it written.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.kinds import Array, Blob, Fixed, Kind, Nested, Nullable, Records, Text
from distributedlog.protocol.schema import Field, Message, Struct, plain

Choose = Callable[[Random], Any]
"""Draws a value for a field whose values are not all of its kind's."""
Rule = Callable[[type[Struct], Field], Choose | None]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
TEXTS = ("", "a", "orders", "çà-日本-🙂", "x" * 126, "x" * 127, "y" * 128, "z" * 300)


def no_rule(_struct: type[Struct], _field: Field) -> None:
    return None


def random_integer(name: str, random: Random) -> int:
    bits = BITS[name]
    low, high = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return random.choice((low, high, 0, 1, random.randint(low, high), random.randint(0, 100)))


def random_fixed(kind: Fixed[Any], random: Random) -> Any:
    if kind.name == "bool":
        return random.random() < 0.5
    if kind.name == "uuid":
        return random.choice((ZERO_UUID, Uuid(random.randbytes(16))))
    if kind.name == "float64":
        return random.choice((0.0, -1.5, random.uniform(-1e9, 1e9)))
    return random_integer(kind.name, random)


class Generator:
    def __init__(self, version: int, random: Random, rule: Rule = no_rule) -> None:
        self.version = version
        self.random = random
        self.rule = rule

    def struct(self, struct: type[Struct]) -> Any:
        values = {}
        for each in struct.fields:
            if not each.is_in(self.version):
                if each.is_required:
                    raise AssertionError(f"{struct.__name__}.{each.name} has no default")
                continue
            choose = self.rule(struct, each)
            draw = choose if choose is not None else lambda random, kind=each.kind: self.value(kind)
            if each.tag is None:
                values[each.name] = draw(self.random)
            elif self.random.random() < 0.5:
                values[each.name] = self._different(each, draw)
        return struct(**values)

    def _different(self, each: Field, draw: Choose) -> Any:
        """A value that is written; the default after all if none is drawn soon."""
        default = each.default_value()
        for _ in range(4):
            value = draw(self.random)
            if value != default and not self._is_all_default(each, value):
                return value
        return default

    def _is_all_default(self, each: Field, value: Any) -> bool:
        """A tagged struct that has all defaults need not be written: writers differ on it."""
        kind = plain(each.kind)
        return isinstance(kind, Nested) and all(
            not inner.is_required and getattr(value, inner.name) == inner.default_value()
            for inner in kind.of.fields
        )

    def value(self, declared: Kind[Any]) -> Any:
        kind = plain(declared)
        if isinstance(declared, Nullable) and declared.since <= self.version and self.random.random() < 0.25:
            return None
        if isinstance(kind, Fixed):
            return random_fixed(kind, self.random)
        if isinstance(kind, Text):
            return self.random.choice(TEXTS)
        if isinstance(kind, Blob | Records):
            return self.random.randbytes(self.random.choice((0, 1, 20, 127, 128, 200)))
        if isinstance(kind, Array):
            count = self.random.choice((0, 1, 1, 2, 3))
            return [self.value(kind.of) for _ in range(count)]
        assert isinstance(kind, Nested)
        return self.struct(kind.of)


def random_message(message: type[Message], version: int, random: Random, rule: Rule = no_rule) -> Any:
    return Generator(version, random, rule).struct(message)
