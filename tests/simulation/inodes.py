"""What a simulated disk holds: files and directories that can undo what was not synced.

Each node has its *volatile* content and, in order, the changes made since it was last synced, each with what
is needed to undo it.  `crash` undoes all of them in reverse, which gives the durable content, and then makes
those again that the mode keeps.  A failed sync covers the changes made so far without saving them: they stay
in the list, and later ones, once synced, are marked durable behind them.
"""

import copy
import itertools
import random
from typing import Literal

SECTOR_BYTES = 512
NOBODY = -1

CrashMode = Literal["drop", "keep", "random"]


# --- what files hold ---------------------------------------------------------------------------


class Write:
    """Bytes put at a position, with those they replaced."""

    __slots__ = ("data", "durable", "position", "replaced", "size_before")

    def __init__(self, content: bytearray, position: int, data: bytes) -> None:
        self.durable = False
        self.position = position
        self.data = data
        self.size_before = len(content)
        self.replaced = b"" if position >= len(content) else bytes(content[position : position + len(data)])

    def undo(self, content: bytearray) -> None:
        del content[self.size_before :]
        content[self.position : self.position + len(self.replaced)] = self.replaced

    def redo(self, content: bytearray) -> None:
        _put(content, self.position, self.data)

    def redo_in_part(self, content: bytearray, chance: random.Random) -> None:
        fate = chance.randrange(8)
        if fate < 3:
            self.redo(content)
        elif fate == 3:
            _grow(content, self.position + len(self.data))
        elif fate == 4:
            sectors = self._sectors()
            for start, end in sectors[: chance.randrange(len(sectors) + 1)]:
                _put(content, self.position + start, self.data[start:end])
        elif fate == 5:
            _grow(content, self.position + len(self.data))
            for start, end in self._sectors():
                if chance.random() < 0.5:
                    _put(content, self.position + start, self.data[start:end])

    def _sectors(self) -> list[tuple[int, int]]:
        """The parts of `data` that lie in one sector each."""
        first = -self.position % SECTOR_BYTES
        cuts = [0, *range(first or SECTOR_BYTES, len(self.data), SECTOR_BYTES), len(self.data)]
        return list(itertools.pairwise(cuts))


class Resize:
    """A truncation, with the tail it took, or an extension by zeros."""

    __slots__ = ("durable", "size", "size_before", "tail")

    def __init__(self, content: bytearray, size: int) -> None:
        self.durable = False
        self.size = size
        self.size_before = len(content)
        self.tail = bytes(content[size:])

    def undo(self, content: bytearray) -> None:
        del content[self.size_before :]
        content += self.tail

    def redo(self, content: bytearray) -> None:
        del content[self.size :]
        _grow(content, self.size)

    def redo_in_part(self, content: bytearray, chance: random.Random) -> None:
        if chance.random() < 0.5:
            self.redo(content)


class _Flip:
    """A bit that rotted: durable from the start."""

    __slots__ = ("durable", "mask", "position")

    def __init__(self, position: int, mask: int) -> None:
        self.durable = True
        self.position = position
        self.mask = mask

    def undo(self, content: bytearray) -> None:
        if self.position < len(content):
            content[self.position] ^= self.mask

    redo = undo

    def redo_in_part(self, content: bytearray, _chance: random.Random) -> None:
        self.redo(content)


Change = Write | Resize | _Flip


def _grow(content: bytearray, size: int) -> None:
    if len(content) < size:
        content.extend(bytes(size - len(content)))


def _put(content: bytearray, position: int, data: bytes) -> None:
    _grow(content, position)
    content[position : position + len(data)] = data


class Inode:
    """A file.  `shared` content belongs to a fork too and is copied before it changes."""

    __slots__ = ("changes", "content", "handles", "links", "lock_epoch", "modified_ms", "shared", "unknown")

    def __init__(self) -> None:
        self.content = bytearray()
        self.changes: list[Change] = []
        self.unknown = 0  # how many of the first changes a failed sync has covered
        self.shared = False
        self.links = 0
        self.handles = 0
        self.lock_epoch = NOBODY
        self.modified_ms = 0

    def make(self, change: Change) -> None:
        change.redo(self._own())
        self.changes.append(change)

    def flip(self, position: int, mask: int) -> None:
        flip = _Flip(position, mask)
        flip.redo(self._own())
        if self.changes:  # in its place among them, so that undoing them finds what they left
            self.changes.append(flip)

    def sync(self) -> None:
        if self.unknown:
            for change in self.changes[self.unknown :]:
                change.durable = True
        else:
            self.changes.clear()

    def fail_sync(self) -> None:
        self.unknown = len(self.changes)

    def crash(self, mode: CrashMode, chance: random.Random) -> None:
        content = self._own()
        for change in reversed(self.changes):
            change.undo(content)
        for change in self.changes:
            if change.durable:
                change.redo(content)
            elif mode == "random":
                change.redo_in_part(content, chance)
        self.changes.clear()
        self.unknown = 0

    def fork(self) -> "Inode":
        twin = Inode()
        twin.content = self.content
        twin.shared = self.shared = True
        twin.changes = [copy.copy(change) for change in self.changes]
        twin.unknown = self.unknown
        twin.modified_ms = self.modified_ms
        return twin

    def _own(self) -> bytearray:
        if self.shared:
            self.content = bytearray(self.content)
            self.shared = False
        return self.content


# --- what directories hold ---------------------------------------------------------------------


class Directory:
    """Names.  A change is a list of (name, node before, node after): two of them for a rename."""

    __slots__ = ("changes", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.changes: list[NameChange] = []

    def make(self, *change: "tuple[str, Node | None]") -> None:
        """Gives each name its new node, or takes it away, all at once."""
        done = [(name, self.names.get(name), node) for name, node in change]
        self.changes.append(done)
        for name, _, node in done:
            self._set(name, node)

    def crash(self, mode: CrashMode, chance: random.Random) -> None:
        for change in reversed(self.changes):
            for name, before, _ in reversed(change):
                self._set(name, before)
        kept = chance.randrange(len(self.changes) + 1) if mode == "random" else 0
        for change in self.changes[:kept]:
            for name, _, after in change:
                self._set(name, after)
        self.changes.clear()

    def _set(self, name: str, node: "Node | None") -> None:
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node


Node = Inode | Directory
NameChange = list[tuple[str, Node | None, Node | None]]


class Forking:
    """Copies a tree, each node once, also those that only an undone change would bring back."""

    def __init__(self) -> None:
        self._twins: dict[int, Node] = {}
        self.dirty: dict[Node, None] = {}

    def node(self, node: Node) -> Node:
        twin = self._twins.get(id(node))
        if twin is None:
            twin = self.directory(node) if isinstance(node, Directory) else node.fork()
            self._twins[id(node)] = twin
            if twin.changes:
                self.dirty[twin] = None
        return twin

    def directory(self, node: Directory) -> Directory:
        twin = Directory()
        self._twins[id(node)] = twin
        twin.names = {name: self.node(child) for name, child in node.names.items()}
        twin.changes = [
            [(name, self._or_none(before), self._or_none(after)) for name, before, after in change]
            for change in node.changes
        ]
        return twin

    def _or_none(self, node: Node | None) -> Node | None:
        return None if node is None else self.node(node)
