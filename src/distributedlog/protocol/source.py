"""A function's source as it is written by a compiler: lines, indentation, constants and fresh names.

What comes out is meant to be read: `codec.source_of(FetchRequest, 12)` shows it, and tracebacks quote it.
"""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any, Final

SHORT_ARRAY_MAX: Final = 7


class Source:
    def __init__(self, title: str, helpers: dict[str, Any]) -> None:
        self.title = title
        self._lines: list[str] = []
        self._depth = 0
        self._constants: dict[str, Any] = dict(helpers)
        self._layouts: dict[str, str] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def drop(self, line: str) -> None:
        self._lines.remove(line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A name for the value, the same one each time."""
        for name, known in self._constants.items():
            if known is value:
                return name
        name = stem if stem not in self._constants else self.fresh(stem + "_")
        self._constants[name] = value
        return name

    def layout(self, method: str, codes: str) -> str:
        """A name for `pack` or `unpack_from` of a big-endian layout."""
        key = f"{method} {codes}"
        if key not in self._layouts:
            name = f"{method.removesuffix('_from')}_{codes.replace('?', 'o')}"
            self._constants[name] = getattr(Layout(">" + codes), method)
            self._layouts[key] = name
        return self._layouts[key]

    def short_arrays(self, method: str, code: str) -> str:
        """A name for a tuple of `pack` or `unpack_from` by count, from 0 on: nearly all arrays are short."""
        name = f"{method.removesuffix('_from')}_few_{code.replace('?', 'o')}"
        if name not in self._constants:
            counts = range(SHORT_ARRAY_MAX + 1)
            self._constants[name] = tuple(getattr(Layout(f">{count}{code}"), method) for count in counts)
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str) -> Any:
        """The function `name` that the lines define."""
        filename = f"<{self.title}>"
        text = self.text()
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self._constants)  # noqa: S102 - the text is this package's own
        return self._constants[name]
