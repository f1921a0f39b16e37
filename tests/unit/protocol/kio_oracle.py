"""Our messages as kio's, by the names of their fields.

kio is an independent implementation, generated from Kafka's own message definitions: one dataclass for each
version.  It reads a few integers as richer types (times, error codes), which cannot hold all their values;
the choices here keep random messages to those they can.
"""

import dataclasses
import datetime
import importlib
import io
import re
import typing
import uuid
from collections.abc import Callable
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from distributedlog.model.ids import Uuid
from distributedlog.protocol.schema import Field, Message, Struct, plain
from tests.unit.protocol.generator import Choose, Rule, random_message

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
ERROR_CODES = [each.value for each in ErrorCode]
SECONDS_MAX = 4_000_000_000


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def kio_class(message: type[Message], version: int) -> Any:
    """kio's class for a version of a message of ours."""
    name = message.__name__
    for suffix, module in (("Request", "request"), ("Response", "response"), ("", "data")):
        if name.endswith(suffix):
            package = snake(name.removesuffix(suffix))
            return getattr(importlib.import_module(f"kio.schema.{package}.v{version}.{module}"), name)
    raise AssertionError(name)


def their_name(name: str) -> str:
    """kio leaves the unit out of a name where it has a type for it."""
    return name.removesuffix("_ms")


class Pairing:
    """One of our structs beside kio's: which of their fields is which of ours, and how values correspond."""

    def __init__(self, ours: type[Struct], theirs: Any, version: int) -> None:
        self.ours = ours
        self.theirs = theirs
        self.pairs: list[tuple[Field, dataclasses.Field[Any], Any]] = []
        hints = typing.get_type_hints(theirs)
        by_name = {their_name(each.name): each for each in dataclasses.fields(theirs)}
        mine = {their_name(each.name): each for each in ours.fields if each.is_in(version)}
        assert list(mine) == list(by_name), f"{ours.__name__} v{version}: {list(mine)} but {list(by_name)}"
        for name, each in mine.items():
            self.pairs.append((each, by_name[name], hints[by_name[name].name]))


def inner_class(hint: Any) -> Any:
    """The dataclass inside `tuple[X, ...] | None`, if there is one."""
    if dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        found = inner_class(argument)
        if found is not None:
            return found
    return None


def to_kafka_type(kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return value * MILLISECOND
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + value * MILLISECOND
    if kafka_type == "uuid":
        return None if value.bytes16 == bytes(16) else uuid.UUID(bytes=value.bytes16)
    return value


def choice_of(kafka_type: str | None, may_be_null: bool) -> Choose | None:
    def moment_ms(random: Random) -> int:
        """It keeps whole seconds, and has a null for -1."""
        moment = 1000 * random.randint(0, SECONDS_MAX)
        return random.choice((-1, moment)) if may_be_null else moment

    choices: dict[str | None, Choose] = {
        "error_code": lambda random: random.choice(ERROR_CODES),
        "timedelta_i64": lambda random: random.randint(-(2**40), 2**40),
        "datetime_i64": moment_ms,
    }
    return choices.get(kafka_type)


class Oracle:
    """kio's codec for one version of one of our messages."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.theirs = kio_class(message, version)
        self.flexible = bool(self.theirs.__flexible__)
        self._pairings: dict[tuple[type[Struct], Any], Pairing] = {}
        self._choices: dict[tuple[type[Struct], str], Choose | None] = {}
        self._pair(message, self.theirs)
        self._write = entity_writer(self.theirs)
        self._read: Callable[[bytes, int], tuple[Any, int]] = entity_reader(self.theirs)

    def _pair(self, ours: type[Struct], theirs: Any) -> None:
        pairing = self._pairings[ours, theirs] = Pairing(ours, theirs, self.version)
        for each, field, hint in pairing.pairs:
            may_be_null = type(None) in typing.get_args(hint)
            self._choices[ours, each.name] = choice_of(field.metadata.get("kafka_type"), may_be_null)
            kind = plain(each.kind)
            kind = getattr(kind, "of", kind)
            struct = getattr(kind, "of", kind)
            if isinstance(struct, type):
                self._pair(struct, inner_class(hint))

    @property
    def rule(self) -> Rule:
        return lambda struct, each: self._choices[struct, each.name]

    def random_message(self, random: Random) -> Any:
        return random_message(self.message, self.version, random, self.rule)

    def to_theirs(self, ours: Struct, theirs: Any = None) -> Any:
        theirs = self.theirs if theirs is None else theirs
        values = {}
        for each, field, hint in self._pairings[type(ours), theirs].pairs:
            value = getattr(ours, each.name)
            if each.tag is not None and value == each.default_value():
                continue
            values[field.name] = self._value(value, field, hint)
        return theirs(**values)

    def _value(self, value: Any, field: dataclasses.Field[Any], hint: Any) -> Any:
        if isinstance(value, list):
            return tuple(self._value(each, field, hint) for each in value)
        if isinstance(value, Struct):
            return self.to_theirs(value, inner_class(hint))
        assert not isinstance(value, Uuid) or field.metadata["kafka_type"] == "uuid"
        return to_kafka_type(field.metadata.get("kafka_type"), value)

    def write(self, theirs: Any) -> bytes:
        with io.BytesIO() as out:
            self._write(out, theirs)
            return out.getvalue()

    def read(self, data: bytes) -> Any:
        theirs, size = self._read(data, 0)
        assert size == len(data)
        return theirs
