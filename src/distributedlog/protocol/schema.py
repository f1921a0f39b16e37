"""Messages as classes: one class spans all versions of a message.

    class FetchRequest(Message, api_key=ApiKey.FETCH, versions=(4, 18), flexible_since=12):
        max_wait_ms: int = field(INT32)
        session_id: int = field(INT32, since=7, default=0)
        topics: list[FetchTopic] = field(array(FetchTopic))
        cluster_id: str | None = field(nullable(STRING), since=12, tag=0, default=None)

`since` and `until` name the first and the last version with the field.  In a version without it the field is
not written, and reading gives its default.  A field without a default must be given to the constructor.  A
field with a `tag` travels in its struct's tagged section, and only when it differs from its default; an
`optional` struct is `None` when it is not there.

Instances are mutable, have slots, take keywords only, compare by value and cannot be hashed.  Tagged fields
that this code does not know are kept as they came in `unknown_tags`, and are written again.

Invariants, checked when a class is made: a field that some version lacks has a default, so has a tagged one;
tags of a struct differ; records are never tagged (a payload is a part of its own, tagged fields are
measured).
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform

from distributedlog.protocol.kinds import Array, Kind, Nested, Nullable, Records

T = TypeVar("T")

UnknownTags = tuple[tuple[int, bytes], ...]
VersionRange = tuple[int, int]

VERSION_MAX: Final = 32767
REPR_PAYLOAD_BYTES_MAX: Final = 32


_UNKNOWN_TAGS: Final[Kind[UnknownTags]] = Kind()


class _Missing:
    """No default was declared."""


_MISSING: Final = _Missing()


class Field(NamedTuple):
    """One declared field.  `default_factory` is None where the default can be shared."""

    name: str
    kind: Kind[Any]
    since: int
    until: int
    tag: int | None
    default: Any
    default_factory: Callable[[], Any] | None

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING and self.default_factory is None

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def default_value(self) -> Any:
        return self.default if self.default_factory is None else self.default_factory()


class _Declared(NamedTuple):
    """What `field` leaves in the class body until the class is made."""

    kind: Kind[Any]
    since: int
    until: int
    tag: int | None
    default: Any
    default_factory: Callable[[], Any] | None

    def named(self, name: str) -> Field:
        return Field(name, self.kind, self.since, self.until, self.tag, self.default, self.default_factory)


def field(
    kind: Kind[T],
    *,
    since: int = 0,
    until: int = VERSION_MAX,
    tag: int | None = None,
    default: T | _Missing = _MISSING,
    default_factory: Callable[[], T] | None = None,
) -> T:
    """Declares a field.  It pretends to return the field's value, as dataclasses do, for the type checker."""
    declared: Any = _Declared(kind, since, until, tag, default, default_factory)
    return declared  # type: ignore[no-any-return]


def plain(kind: Kind[Any]) -> Kind[Any]:
    """The kind without its `nullable`."""
    return kind.of if isinstance(kind, Nullable) else kind


def _check(owner: str, fields: tuple[Field, ...]) -> None:
    tags = [each.tag for each in fields if each.tag is not None]
    if len(set(tags)) != len(tags):
        raise TypeError(f"{owner} gives one tag to two fields")
    for each in fields:
        optional = each.since > 0 or each.until < VERSION_MAX or each.tag is not None
        if optional and each.is_required:
            raise TypeError(f"{owner}.{each.name} is not in every message: it needs a default")
        if isinstance(each.kind, Nullable) and not each.kind.is_marked and each.tag is None:
            raise TypeError(f"{owner}.{each.name}: only a tagged struct is optional")
        if each.tag is not None and isinstance(plain(each.kind), Records):
            raise TypeError(f"{owner}.{each.name}: records cannot be tagged")


def _init_on_first_use(owner: str, fields: tuple[Field, ...]) -> Callable[..., None]:
    """Most structs are never constructed in a process: it need not compile what it does not use."""

    def __init__(self: "Struct", **values: Any) -> None:  # noqa: N807
        compiled = _compile_init(owner, fields)
        type.__setattr__(type(self), "__init__", compiled)
        compiled(self, **values)

    return __init__


def _compile_init(owner: str, fields: tuple[Field, ...]) -> Callable[..., None]:
    """An `__init__` as one would write it by hand: a generic one costs several times as much."""
    namespace: dict[str, Any] = {"_MISSING": _MISSING}
    parameters, body = [], []
    for index, each in enumerate(fields):
        if each.default_factory is not None:
            namespace[f"_factory{index}"] = each.default_factory
            parameters.append(f"{each.name}=_MISSING")
            body.append(
                f"    self.{each.name} = _factory{index}() if {each.name} is _MISSING else {each.name}"
            )
            continue
        if each.is_required:
            parameters.append(each.name)
        else:
            namespace[f"_default{index}"] = each.default
            parameters.append(f"{each.name}=_default{index}")
        body.append(f"    self.{each.name} = {each.name}")
    signature = ", ".join(["self", "*", *parameters, "unknown_tags=()"])
    source = "\n".join([f"def __init__({signature}):", *body, "    self.unknown_tags = unknown_tags"])
    exec(compile(source, f"<init of {owner}>", "exec"), namespace)  # noqa: S102 - the text is made above
    made: Callable[..., None] = namespace["__init__"]
    return made


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructType(type):
    """Turns declared fields into slots and a constructor."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "StructType":
        declared = {key: value for key, value in namespace.items() if isinstance(value, _Declared)}
        for key in declared:
            del namespace[key]
        fields = tuple(value.named(key) for key, value in declared.items())
        _check(name, fields)
        namespace.setdefault("__slots__", tuple(declared))
        if bases:
            namespace["fields"] = fields
            namespace["__init__"] = _init_on_first_use(name, fields)
            namespace["_values"] = attrgetter(*(each.name for each in fields), "unknown_tags")
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=StructType):
    """A group of fields.  Subclass it and declare them with `field`."""

    __hash__ = None  # type: ignore[assignment]

    fields: ClassVar[tuple[Field, ...]] = ()
    _values: ClassVar[Callable[[Any], Any]]
    unknown_tags: UnknownTags = field(_UNKNOWN_TAGS, default=())

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = self.__class__._values
        return bool(values(self) == values(other))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={text}" for name, text in self._shown())
        return f"{self.__class__.__name__}({shown})"

    def _shown(self) -> Iterator[tuple[str, str]]:
        """Returns what differs from the defaults; payloads by their length."""
        for each in self.fields:
            value = getattr(self, each.name)
            if not each.is_required and value == each.default_value():
                continue
            yield each.name, _shortened(value)
        if self.unknown_tags:
            yield "unknown_tags", repr(self.unknown_tags)


def _shortened(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > REPR_PAYLOAD_BYTES_MAX:
        return f"<{len(value)} bytes>"
    return repr(bytes(value)) if isinstance(value, memoryview) else repr(value)


Encoder = Callable[[Any], list[Any]]
Decoder = Callable[[Any, int, int], tuple[Any, int]]


class Message(Struct):
    """A struct that travels by itself.  Requests and responses have an api key, records have none (-1)."""

    __slots__ = ()

    api_key: ClassVar[int] = -1
    versions: ClassVar[VersionRange] = (0, 0)
    flexible_since: ClassVar[int] = VERSION_MAX
    encoders: ClassVar[dict[int, Encoder]]
    decoders: ClassVar[dict[int, Decoder]]

    def __init_subclass__(
        cls, *, versions: VersionRange, api_key: int = -1, flexible_since: int = VERSION_MAX
    ) -> None:
        super().__init_subclass__()
        cls.api_key = api_key
        cls.versions = versions
        cls.flexible_since = flexible_since
        # Filled by `codec` as versions are first used.
        cls.encoders = {}
        cls.decoders = {}


def structs_within(message: type[Struct]) -> Iterator[type[Struct]]:
    """The struct itself and all that are nested in it, each once."""
    seen: list[type[Struct]] = []
    waiting: list[type[Struct]] = [message]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.append(current)
        yield current
        for each in current.fields:
            kind = plain(each.kind)
            kind = kind.of if isinstance(kind, Array) else kind
            if isinstance(kind, Nested):
                waiting.append(kind.of)
