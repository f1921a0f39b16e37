"""The response to a request that failed as a whole, derived from the schemas of both.

    the response, in this version         what is made of it
    has an `error_code`                   it gets the code, `error_message` the text; all else is empty
    has it in the elements of an array    one element for each of the request's, with its names and ids
    has none                              None: the protocol has no form for this error

An element of the response belongs to the array of the request that has the same name, or else to its first
array: Kafka's schemas mirror each other so.  What an element has under the same name in both is copied; if
the request's elements are plain names or numbers, they go into the first field of their kind.  What is named
twice is in the response once.

Offsets, and ids of producers and nodes, are -1 where they are not known; other numbers 0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.kinds import Array, Blob, Fixed, Kind, Nested, Nullable, Records, Text
from distributedlog.protocol.registry import api_of
from distributedlog.protocol.schema import Field, Message, Struct, plain

CODE: Final = "error_code"
TEXT: Final = "error_message"
UNKNOWN: Final = -1
_UNKNOWN_ENDINGS: Final = ("_offset", "_watermark", "producer_id", "producer_epoch", "node_id", "port")
PLANS_MAX: Final = 512

Make = Callable[[Any, int, str], Any]
"""Makes a response, or an element of one, from what it answers, a code and a text."""
_NO_ARRAYS: Final[Mapping[str, tuple[str, Make, bool]]] = {}


def derive_error_response(request: Message, api_version: int, code: ErrorCode, text: str) -> Message | None:
    """The response that says that all of the request failed; None if the API has no form for it."""
    plan = _plan_message(type(request), api_of(request.api_key).response, api_version)
    made: Message | None = None if plan is None else plan(request, int(code), text)
    return made


def make_empty(kind: Kind[Any], api_version: int) -> Any:
    """The emptiest value of a kind."""
    if isinstance(kind, Nullable):
        return None if kind.since <= api_version else make_empty(kind.of, api_version)
    if isinstance(kind, Array):
        return []
    if isinstance(kind, Fixed):
        return kind.zero
    return "" if isinstance(kind, Text) else b"" if isinstance(kind, Blob | Records) else None


# --- plans: what is made of which schemas, worked out once ---------------------------------------


@lru_cache(PLANS_MAX)
def _plan_message(request: type[Message], response: type[Message], version: int) -> Make | None:
    if _has_code(response, version):
        return _plan_struct(response, None, version)
    return _plan_mirror(request, response, version)


def _plan_mirror(request: type[Struct], response: type[Struct], version: int) -> Make | None:
    """Plans a response without a code of its own: its elements have one."""
    for field in _arrays(response, version):
        element = _element(field)
        source = _find_source(request, field.name, version)
        if element is None or source is None:
            continue
        make = _plan_element(_element(source) or _kind_of(source), element, version)
        if make is not None:
            is_distinct = _has_code(element, version)
            return _plan_struct(response, request, version, {field.name: (source.name, make, is_distinct)})
    return None


def _plan_element(request: type[Struct] | Kind[Any], response: type[Struct], version: int) -> Make | None:
    if not _has_code(response, version):
        return _plan_mirror(request, response, version) if isinstance(request, type) else None
    if isinstance(request, type):
        return _plan_struct(response, request, version)
    first = next((each for each in response.fields if _is_alike(each.kind, request)), None)
    return None if first is None else _plan_struct(response, None, version, value_name=first.name)


def _plan_struct(
    response: type[Struct],
    request: type[Struct] | None,
    version: int,
    arrays: Mapping[str, tuple[str, Make, bool]] = _NO_ARRAYS,
    value_name: str | None = None,
) -> Make:
    present = [each for each in response.fields if each.is_in(version)]
    copied = [] if request is None else [each for each in present if each.name not in arrays]
    pairs = [(each, _find_same(request, each, version)) for each in copied if request is not None]
    copies = [(each.name, each.kind) for each, same in pairs if same]
    empty = {
        each.name: _make_unknown(each, version)
        for each in response.fields
        if each.name not in (CODE, TEXT) and (each.is_required or _is_unknown_by_zero(each, version))
    }
    has_code = _has_code(response, version)
    has_text = has_code and any(each.name == TEXT for each in present)

    def make(source: Any, code: int, text: str) -> Any:
        values = {name: list(value) if type(value) is list else value for name, value in empty.items()}
        for name, kind in copies:
            value = getattr(source, name)
            values[name] = make_empty(kind, version) if value is None else value
        for name, (source_name, make_each, is_distinct) in arrays.items():
            sources = getattr(source, source_name) or ()
            values[name] = [
                make_each(each, code, text) for each in (_drop_repeats(sources) if is_distinct else sources)
            ]
        if value_name is not None:
            values[value_name] = source
        if has_code:
            values[CODE] = code
        if has_text:
            values[TEXT] = text
        return construct(**values)

    construct: Callable[..., Struct] = response
    return make


def _drop_repeats(sources: Iterable[Any]) -> Iterator[Any]:
    seen: set[Any] = set()
    for source in sources:
        name = getattr(source, "name", None) if isinstance(source, Struct) else source
        if name is None or name not in seen:
            seen.add(name)
            yield source


def _make_unknown(field: Field, version: int) -> Any:
    value = make_empty(field.kind, version)
    return UNKNOWN if value == 0 and field.name.endswith(_UNKNOWN_ENDINGS) else value


def _is_unknown_by_zero(field: Field, version: int) -> bool:
    """It has a default of 0, which would be a broker's id or an offset."""
    return field.is_in(version) and field.name.endswith(_UNKNOWN_ENDINGS) and field.default_value() == 0


# --- schemas -------------------------------------------------------------------------------------


def _has_code(struct: type[Struct], version: int) -> bool:
    return any(each.name == CODE and each.is_in(version) for each in struct.fields)


def _arrays(struct: type[Struct], version: int) -> list[Field]:
    return [each for each in struct.fields if isinstance(plain(each.kind), Array) and each.is_in(version)]


def _kind_of(field: Field) -> Kind[Any]:
    array = plain(field.kind)
    assert isinstance(array, Array)
    kind: Kind[Any] = array.of
    return kind


def _element(field: Field) -> type[Struct] | None:
    """The struct that an array's elements are, if they are structs."""
    kind = _kind_of(field)
    return kind.of if isinstance(kind, Nested) else None


def _find_source(request: type[Struct], name: str, version: int) -> Field | None:
    arrays = _arrays(request, version)
    return next((each for each in arrays if each.name == name), arrays[0] if arrays else None)


def _find_same(request: type[Struct], field: Field, version: int) -> bool:
    return any(
        each.name == field.name and each.is_in(version) and _is_alike(each.kind, field.kind)
        for each in request.fields
    )


def _is_alike(one: Kind[Any], other: Kind[Any]) -> bool:
    one, other = plain(one), plain(other)
    if isinstance(one, Array) and isinstance(other, Array):
        return _is_alike(one.of, other.of)
    if isinstance(one, Nested) and isinstance(other, Nested):
        return one.of is other.of
    return one is other
