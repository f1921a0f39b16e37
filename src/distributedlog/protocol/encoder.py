"""Compiles a message of one version to a function that writes it.

The function walks the message once, structs in arrays as nested loops, and appends pieces to a list.
Fixed-size neighbours become one `pack`, together with the length or count that follows them: a classic length
is a number of fixed size, and a flexible one is a single byte nearly always (the longer form is the other
branch of a conditional expression).  An empty tagged section is a pad byte at the end of a run.

A payload cuts the list: what was gathered becomes one part, the payload the next.  So the parts of a
response without payload are one, and with one payload two or three.
"""

from struct import pack
from typing import Any

from distributedlog.protocol.kinds import TAGGED_NULL, Array, Fixed, Kind, Nested, Nullable, Records, Text
from distributedlog.protocol.primitives import SMALL_UVARINTS, append_tags, uvarint
from distributedlog.protocol.schema import Field, Message, Struct, plain, structs_within
from distributedlog.protocol.source import SHORT_ARRAY_MAX, Source

_HELPERS: dict[str, Any] = {
    "pack": pack,
    "join": b"".join,
    "uvarint": uvarint,
    "small": SMALL_UVARINTS,
    "no_tags": SMALL_UVARINTS[0],
    "append_tags": append_tags,
}


class EncoderCompiler:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version >= message.flexible_since
        self.source = Source(f"encoder of {message.__name__} v{version}", _HELPERS)
        self._run: list[tuple[str, str]] = []
        self._append = "append"

    def compile(self) -> Source:
        has_payload = any(
            isinstance(plain(each.kind), Records) and each.is_in(self.version)
            for struct in structs_within(self.message)
            for each in struct.fields
        )
        with self.source.block("def encode(message):"):
            self.source.line("out = []")
            self.source.line("append = out.append")
            if has_payload:
                self.source.line("parts = []")
            self._struct(self.message, "message")
            self._flush()
            if has_payload:
                self.source.line("if out: parts.append(join(out))")
                self.source.line("return parts")
            else:
                self.source.line("return [join(out)]")
        return self.source

    # --- runs ------------------------------------------------------------------------------------

    def _packed(self, run: list[tuple[str, str]]) -> str:
        name = self.source.layout("pack", "".join(code for code, _ in run))
        return f"{name}({', '.join(value for _, value in run if value)})"

    def _flush(self) -> None:
        if self._run:
            self.source.line(f"{self._append}({self._packed(self._run)})")
        self._run = []

    def _flush_with_length(self, classic_code: str, length: str) -> None:
        """Ends the run with a length or count.  In flexible versions `length` is one more than is meant."""
        if not self.flexible:
            self._run.append((classic_code, length))
            self._flush()
            return
        if self._run:
            short = self._packed([*self._run, ("B", length)])
            long = f"{self._packed(self._run)} + uvarint({length})"
        else:
            short, long = f"small[{length}]", f"uvarint({length})"
        self.source.line(f"{self._append}({short} if {length} < 128 else {long})")
        self._run = []

    # --- structs ---------------------------------------------------------------------------------

    def _struct(self, struct: type[Struct], holder: str) -> None:
        fields = [each for each in struct.fields if each.is_in(self.version)]
        for each in fields:
            if each.tag is None:
                self._value(each.kind, f"{holder}.{each.name}")
        if self.flexible:
            self._tags([each for each in fields if each.tag is not None], holder)

    def _tags(self, fields: list[Field], holder: str) -> None:
        run = list(self._run)
        present = {each.name: self._is_present(each, holder) for each in fields}
        anything = " or ".join([*present.values(), f"{holder}.unknown_tags"])
        with self.source.block(f"if {anything}:"):
            self._flush()
            tagged = self.source.fresh("tagged")
            self.source.line(f"{tagged} = list({holder}.unknown_tags)")
            for each in fields:
                with self.source.block(f"if {present[each.name]}:"):
                    self._tagged_value(each, f"{holder}.{each.name}", tagged)
            self.source.line(f"append_tags({self._append}, {tagged})")
        with self.source.block("else:"):
            self._run = [*run, ("x", "")] if run else []
            self._flush()
            if not run:
                self.source.line(f"{self._append}(no_tags)")

    def _is_present(self, each: Field, holder: str) -> str:
        """An expression: does the tagged field differ from its default?"""
        value = f"{holder}.{each.name}"
        if each.default_factory is list:
            return f"{value}"
        default = each.default_value()
        if _is_tagged_nullable_struct(each):
            return "True"
        if default is None:
            return f"{value} is not None"
        if isinstance(default, int | str):
            return f"{value} != {default!r}"
        return f"{value} != {self.source.constant(f'default_of_{each.name}', default)}"

    def _tagged_value(self, each: Field, value: str, tagged: str) -> None:
        out, append, outer = self.source.fresh("out"), self.source.fresh("append"), self._append
        self.source.line(f"{out} = []")
        self.source.line(f"{append} = {out}.append")
        self._append = append
        kind = each.kind
        if isinstance(kind, Nullable) and not kind.is_marked:
            kind = kind.of
        if isinstance(kind, Nullable) and isinstance(kind.of, Nested):
            self._nested(kind.of, value, may_be_null=True, null_mark=TAGGED_NULL)
        else:
            self._value(kind, value)
        self._flush()
        self._append = outer
        self.source.line(f"{tagged}.append(({each.tag}, join({out})))")

    # --- values ----------------------------------------------------------------------------------

    def _value(self, declared: Kind[Any], value: str) -> None:
        kind = plain(declared)
        may_be_null = isinstance(declared, Nullable) and declared.since <= self.version
        if isinstance(kind, Fixed):
            self._run.append((kind.code, f"{value}.bytes16" if kind.name == "uuid" else value))
        elif isinstance(kind, Nested):
            self._nested(kind, value, may_be_null)
        elif isinstance(kind, Array):
            self._array(kind, value, may_be_null)
        else:
            self._sized(kind, value, may_be_null)

    def _nested(self, kind: Nested[Any], value: str, may_be_null: bool, null_mark: int = -1) -> None:
        inner = self.source.fresh("inner")
        self.source.line(f"{inner} = {value}")
        if not may_be_null:
            self._struct(kind.of, inner)
            return
        run = list(self._run)
        with self.source.block(f"if {inner} is None:"):
            self._run.append(("b", str(null_mark)))
            self._flush()
        with self.source.block("else:"):
            self._run = [*run, ("b", "1")]
            self._struct(kind.of, inner)
            self._flush()

    def _length_of(self, value: str, may_be_null: bool, encoded: str, empty: str) -> tuple[str, str]:
        """Lines that put the bytes or elements and their length into two fresh names."""
        data, length = self.source.fresh("data"), self.source.fresh("length")
        plus = " + 1" if self.flexible else ""
        if not may_be_null:
            self.source.line(f"{data} = {value}{encoded}")
            self.source.line(f"{length} = len({data}){plus}")
            return data, length
        self.source.line(f"{data} = {value}")
        with self.source.block(f"if {data} is None:"):
            self.source.line(f"{data} = {empty}")
            self.source.line(f"{length} = {0 if self.flexible else -1}")
        with self.source.block("else:"):
            if encoded:
                self.source.line(f"{data} = {data}{encoded}")
            self.source.line(f"{length} = len({data}){plus}")
        return data, length

    def _sized(self, kind: Kind[Any], value: str, may_be_null: bool) -> None:
        is_text = isinstance(kind, Text)
        data, length = self._length_of(value, may_be_null, ".encode()" if is_text else "", 'b""')
        self._flush_with_length("h" if is_text else "i", length)
        if not isinstance(kind, Records):
            self.source.line(f"{self._append}({data})")
            return
        with self.source.block(f"if {length} > {1 if self.flexible else 0}:"):
            self.source.line("parts.append(join(out))")
            self.source.line(f"parts.append({data})")
            self.source.line("out.clear()")

    def _array(self, kind: Array[Any], value: str, may_be_null: bool) -> None:
        items, count = self._length_of(value, may_be_null, "", "()")
        self._flush_with_length("i", count)
        of = kind.of
        if isinstance(of, Fixed):
            if of.name == "uuid":
                self.source.line(f"{self._append}(join([each.bytes16 for each in {items}]))")
            else:
                size = f"len({items})"
                few = f"{self.source.short_arrays('pack', of.code)}[{size}](*{items})"
                many = f"pack(f'>{{{size}}}{of.code}', *{items})"
                self.source.line(f"{self._append}({few} if {size} <= {SHORT_ARRAY_MAX} else {many})")
            return
        item = self.source.fresh("item")
        with self.source.block(f"for {item} in {items}:"):
            if isinstance(of, Nested):
                self._struct(of.of, item)
            else:
                self._value(of, item)
            self._flush()


def _is_tagged_nullable_struct(each: Field) -> bool:
    """Returns whether null has to be written: Kafka's default of one is an empty struct."""
    kind = each.kind
    return isinstance(kind, Nullable) and kind.is_marked and isinstance(kind.of, Nested)
