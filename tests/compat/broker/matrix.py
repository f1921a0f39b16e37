"""Client x feature, gathered from the tests' reports, in whichever process a test ran.

A test notes its cells as properties of its report.  After a whole run every cell must have been noted, or
stand in `features.ABSENT` with the reason: else the run fails, so that a test that is forgotten or not
collected is seen.

    ok   as it should be      FAILED   it is not      --   the client does not offer it      ??   a hole
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from tests.compat.broker.clients import CLIENTS
from tests.compat.broker.features import ABSENT, CODECS, FEATURES

PROPERTY = "compat"
CROSS = "codecs read of what was written by"
Cell = tuple[str, str, str]
"""A client, a feature or the client whose writing it reads, and the codec if it is the latter."""


class Noted:
    """A test's cells."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def note(self, client: str, feature: str, codec: str = "", *, is_ok: bool) -> None:
        self._item.user_properties.append((PROPERTY, [client, feature, codec, is_ok]))

    @contextmanager
    def cell(self, client: str, feature: str) -> Iterator[None]:
        """It is as it should be if what is done inside raises nothing."""
        try:
            yield
        except BaseException:
            self.note(client, feature, is_ok=False)
            raise
        self.note(client, feature, is_ok=True)


class Matrix:
    """All cells of a run."""

    def __init__(self) -> None:
        self._cells: dict[Cell, bool] = {}

    def add(self, properties: Iterable[tuple[str, object]]) -> None:
        for name, noted in properties:
            if name == PROPERTY:
                assert isinstance(noted, list)
                client, feature, codec, is_ok = noted
                cell = (client, feature, codec)
                self._cells[cell] = self._cells.get(cell, True) and is_ok

    def __bool__(self) -> bool:
        return bool(self._cells)

    def holes(self) -> list[Cell]:
        wanted = [(client, feature, "") for client in CLIENTS for feature in FEATURES]
        wanted += [(reader, writer, codec) for reader in CLIENTS for writer in CLIENTS for codec in CODECS]
        return [cell for cell in wanted if cell not in self._cells and (cell[0], cell[1]) not in ABSENT]

    def lines(self) -> Iterator[str]:
        width = max(map(len, (*FEATURES, CROSS)))
        yield " " * width + "".join(f"{client:>17}" for client in CLIENTS)
        for feature in FEATURES:
            marks = [self._mark(client, feature) for client in CLIENTS]
            yield f"{feature:<{width}}" + "".join(f"{mark:>17}" for mark in marks)
        yield ""
        yield f"{CROSS:<{width}}" + "".join(f"{name:>17}" for name in CLIENTS)
        for writer in CLIENTS:
            marks = [self._codecs(reader, writer) for reader in CLIENTS]
            yield f"{writer:<{width}}" + "".join(f"{mark:>17}" for mark in marks)
        if ABSENT:
            yield ""
            yield from sorted({f"--  {client}: {reason}" for (client, _), reason in ABSENT.items()})

    def _mark(self, client: str, feature: str) -> str:
        if (client, feature) in ABSENT:
            return "--"
        found = self._cells.get((client, feature, ""))
        return "??" if found is None else "ok" if found else "FAILED"

    def _codecs(self, reader: str, writer: str) -> str:
        good = sum(self._cells.get((reader, writer, codec), False) for codec in CODECS)
        return f"{good} of {len(CODECS)}"
