"""Compiles a message of one version to a function that reads it.

The function has one cursor, `p`, and moves it forward only.  Fixed-size neighbours are one `unpack_from`
straight into the message's slots, together with the length or count that follows them (of a flexible one, its
first byte, which is all of it below 128).  An `unpack_from` or an index behind the end raises by itself; what
would not, slices and counts, is checked first:

    string, bytes   0 <= length, and the bytes are there
    array           0 <= count, the smallest elements would fit into the bytes that are left, and the
                    message's budget of elements holds them
    tagged section  as `primitives` says; a known field must fill exactly the size it claims

So work and memory are bounded by the frame and the budget before either is spent.
"""

from struct import calcsize, unpack_from
from typing import Any

from distributedlog.model.ids import Uuid
from distributedlog.protocol import primitives
from distributedlog.protocol.kinds import TAGGED_NULL, Array, Blob, Fixed, Kind, Nested, Nullable, Text
from distributedlog.protocol.schema import Field, Message, Struct, plain
from distributedlog.protocol.source import SHORT_ARRAY_MAX, Source

_HELPERS: dict[str, Any] = {
    "new": object.__new__,
    "unpack_from": unpack_from,
    "Uuid": Uuid,
    "rest_of_uvarint": primitives.rest_of_uvarint,
    "read_tag_count": primitives.read_tag_count,
    "read_unknown_tags": primitives.read_unknown_tags,
    "read_tag": primitives.read_tag,
    "refuse_length": primitives.refuse_length,
    "refuse_count": primitives.refuse_count,
    "refuse_tag_size": primitives.refuse_tag_size,
}


def least_bytes(declared: Kind[Any], version: int, flexible: bool) -> int:
    """The fewest bytes that a value of the kind takes."""
    kind = plain(declared)
    if isinstance(kind, Fixed):
        return kind.size_bytes
    if isinstance(kind, Nested):
        if isinstance(declared, Nullable):
            return 1
        untagged = [each for each in kind.of.fields if each.is_in(version) and each.tag is None]
        return int(flexible) + sum(least_bytes(each.kind, version, flexible) for each in untagged)
    if flexible:
        return 1
    return 2 if isinstance(kind, Text) else 4


class DecoderCompiler:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version >= message.flexible_since
        self.source = Source(f"decoder of {message.__name__} v{version}", _HELPERS)
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []

    def compile(self) -> Source:
        with self.source.block("def decode(buffer, p, budget):"):
            self.source.line("limit = len(buffer)")
            self.source.line("view = memoryview(buffer)")
            self._new(self.message, "message")
            self._struct(self.message, "message")
            self._flush()
            self.source.line("return message, p")
        if "view[" not in self.source.text():
            self.source.drop("    view = memoryview(buffer)")
        return self.source

    # --- runs ------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if self._run:
            codes = "".join(code for code, _ in self._run)
            targets = ", ".join(target for _, target in self._run)
            comma = "," if len(self._run) == 1 else ""
            self.source.line(f"{targets}{comma} = {self.source.layout('unpack_from', codes)}(buffer, p)")
            self.source.line(f"p += {calcsize('>' + codes)}")
        for line in self._after_run:
            self.source.line(line)
        self._run, self._after_run = [], []

    def _flush_with_uvarint(self, target: str) -> None:
        if self._run:
            self._run.append(("B", target))
            self._flush()
        else:
            self.source.line(f"{target} = buffer[p]")
            self.source.line("p += 1")

    def _flush_with_length(self, classic_code: str, stem: str) -> str:
        """Ends the run with a length or count; gives its name.  In flexible versions it is one too great."""
        length = self.source.fresh(stem)
        if self.flexible:
            self._flush_with_uvarint(length)
            self.source.line(f"if {length} > 127: {length}, p = rest_of_uvarint(buffer, p, {length})")
        else:
            self._run.append((classic_code, length))
            self._flush()
        return length

    # --- structs ---------------------------------------------------------------------------------

    def _new(self, struct: type[Struct], holder: str) -> None:
        """Makes the object, with defaults in what this version does not have or may leave out."""
        self.source.line(f"{holder} = new({self.source.constant(struct.__name__, struct)})")
        self.source.line(f"{holder}.unknown_tags = ()")
        for each in struct.fields:
            if each.tag is not None or not each.is_in(self.version):
                self.source.line(f"{holder}.{each.name} = {self._default(each)}")

    def _default(self, each: Field) -> str:
        if each.default_factory is not None:
            return f"{self.source.constant(f'new_{each.name}', each.default_factory)}()"
        if each.default is None or isinstance(each.default, int | str):
            return repr(each.default)
        return self.source.constant(f"default_of_{each.name}", each.default)

    def _struct(self, struct: type[Struct], holder: str) -> None:
        fields = [each for each in struct.fields if each.is_in(self.version)]
        for each in fields:
            if each.tag is None:
                self._value(each.kind, f"{holder}.{each.name}", f"{struct.__name__}.{each.name}")
        if self.flexible:
            self._tags(struct, [each for each in fields if each.tag is not None], holder)

    def _tags(self, struct: type[Struct], fields: list[Field], holder: str) -> None:
        count, tag, end, unknown = (self.source.fresh(stem) for stem in ("count", "tag", "end", "unknown"))
        self._flush_with_uvarint(count)
        with self.source.block(f"if {count}:"):
            if not fields:
                self.source.line(
                    f"{holder}.unknown_tags, p, budget = read_unknown_tags(buffer, p, limit, {count}, budget)"
                )
                return
            self.source.line(f"{count}, p, budget = read_tag_count(buffer, p, limit, {count}, budget)")
            self.source.line(f"{unknown} = []")
            self.source.line(f"{tag} = -1")
            with self.source.block(f"for _ in range({count}):"):
                self.source.line(f"{tag}, p, {end} = read_tag(buffer, p, limit, {tag})")
                for each in fields:
                    name = f"{struct.__name__}.{each.name}"
                    with self.source.block(f"if {tag} == {each.tag}:"):
                        self._tagged_value(each, f"{holder}.{each.name}", name)
                        self.source.line(f"if p != {end}: refuse_tag_size('{name}')")
                        self.source.line("continue")
                self.source.line(f"{unknown}.append(({tag}, bytes(buffer[p:{end}])))")
                self.source.line(f"p = {end}")
            self.source.line(f"{holder}.unknown_tags = tuple({unknown})")

    def _tagged_value(self, each: Field, target: str, name: str) -> None:
        kind = each.kind
        if isinstance(kind, Nullable) and not kind.is_marked:
            kind = kind.of
        if isinstance(kind, Nullable) and isinstance(kind.of, Nested):
            self._nested(kind.of, target, may_be_null=True, null_mark_max=TAGGED_NULL)
        else:
            self._value(kind, target, name)
        self._flush()

    # --- values ----------------------------------------------------------------------------------

    def _value(self, declared: Kind[Any], target: str, name: str) -> None:
        kind = plain(declared)
        may_be_null = isinstance(declared, Nullable) and declared.since <= self.version
        if isinstance(kind, Fixed):
            self._fixed(kind, target)
        elif isinstance(kind, Nested):
            self._nested(kind, target, may_be_null)
        elif isinstance(kind, Array):
            self._array(kind, target, name, may_be_null)
        else:
            self._sized(kind, target, name, may_be_null)

    def _fixed(self, kind: Fixed[Any], target: str) -> None:
        if kind.name != "uuid":
            self._run.append((kind.code, target))
            return
        raw = self.source.fresh("raw")
        self._run.append((kind.code, raw))
        self._after_run.append(f"{target} = Uuid({raw})")

    def _nested(self, kind: Nested[Any], target: str, may_be_null: bool, null_mark_max: int = -1) -> None:
        inner = self.source.fresh("inner")
        if not may_be_null:
            self._new(kind.of, inner)
            self.source.line(f"{target} = {inner}")
            self._struct(kind.of, inner)
            return
        mark = self.source.fresh("mark")
        self._run.append(("b", mark))
        self._flush()
        with self.source.block(f"if {mark} <= {null_mark_max}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self._new(kind.of, inner)
            self.source.line(f"{target} = {inner}")
            self._struct(kind.of, inner)
            self._flush()

    def _sized(self, kind: Kind[Any], target: str, name: str, may_be_null: bool) -> None:
        length = self._flush_with_length("h" if isinstance(kind, Text) else "i", "length")
        if may_be_null:
            with self.source.block(f"if {length} == {0 if self.flexible else -1}:"):
                self.source.line(f"{target} = None")
            with self.source.block("else:"):
                self._sized_data(kind, target, name, length)
        else:
            self._sized_data(kind, target, name, length)

    def _sized_data(self, kind: Kind[Any], target: str, name: str, length: str) -> None:
        less = " - 1" if self.flexible else ""
        end = self.source.fresh("end")
        self.source.line(f"{end} = p + {length}{less}")
        self.source.line(f"if {end} < p or {end} > limit: refuse_length('{name}', {length}{less}, limit - p)")
        if isinstance(kind, Text):
            self.source.line(f"{target} = str(buffer[p:{end}], 'utf-8')")
        elif isinstance(kind, Blob):
            self.source.line(f"{target} = bytes(buffer[p:{end}])")
        else:
            self.source.line(f"{target} = view[p:{end}]")
        self.source.line(f"p = {end}")

    def _array(self, kind: Array[Any], target: str, name: str, may_be_null: bool) -> None:
        count = self._flush_with_length("i", "count")
        if may_be_null:
            with self.source.block(f"if {count} == {0 if self.flexible else -1}:"):
                self.source.line(f"{target} = None")
            with self.source.block("else:"):
                self._elements(kind.of, target, name, count)
        else:
            self._elements(kind.of, target, name, count)

    def _elements(self, of: Kind[Any], target: str, name: str, count: str) -> None:
        if self.flexible:
            self.source.line(f"{count} -= 1")
        least = max(1, least_bytes(of, self.version, self.flexible))
        self.source.line(f"budget -= {count}")
        self.source.line(
            f"if {count} < 0 or budget < 0 or {count} * {least} > limit - p: "
            f"refuse_count('{name}', {count}, limit - p)"
        )
        if isinstance(of, Fixed):
            self._fixed_elements(of, target, count)
            return
        items, item = self.source.fresh("items"), self.source.fresh("item")
        self.source.line(f"{target} = {items} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(of, Nested):
                self._new(of.of, item)
                self._struct(of.of, item)
            else:
                self._value(of, item, name)
            self._flush()
            self.source.line(f"{items}.append({item})")

    def _fixed_elements(self, of: Fixed[Any], target: str, count: str) -> None:
        if of.name == "uuid":
            self.source.line(
                f"{target} = [Uuid(bytes(buffer[at : at + 16])) for at in range(p, p + {count} * 16, 16)]"
            )
        else:
            few = f"{self.source.short_arrays('unpack_from', of.code)}[{count}](buffer, p)"
            many = f"unpack_from(f'>{{{count}}}{of.code}', buffer, p)"
            self.source.line(f"{target} = list({few} if {count} <= {SHORT_ARRAY_MAX} else {many})")
        self.source.line(f"p += {count} * {of.size_bytes}")
