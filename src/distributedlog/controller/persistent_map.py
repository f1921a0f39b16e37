"""A map that is never changed: setting a key gives a new map that shares all but a path with the old one.

It is a trie over 32 bits of the key's hash, five at a time, with only the slots that are used:

    _Branch  bitmap: which of 32 slots are used | slots: in order, each a _Branch or a _Leaf
    _Leaf    hash | key | value | rest: other keys of the very same hash, nearly always none

Invariants: a branch has at least two slots, or one that is a branch; so one content has one shape but for the
order within `rest`, and two maps can be compared by walking only where they do not share.  The hash does not
depend on the process, so iteration goes the same way everywhere: whatever is derived from a map replays.

Setting one key among 10,000 copies three short tuples.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar, cast, overload
from zlib import crc32

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

BITS: Final = 5
SLOT_MASK: Final = 31
HASH_MASK: Final = 0xFFFFFFFF


class _Missing:
    """No value."""


_MISSING: Final = _Missing()


def hash32(key: object) -> int:
    """Hashes numbers, texts, bytes and tuples of them: the same in every process."""
    kind = type(key)
    if kind is int:
        return cast(int, key) & HASH_MASK
    if kind is bytes:
        return crc32(cast(bytes, key))
    if isinstance(key, int):
        return key & HASH_MASK
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if key is None:  # a part that is left out
        return HASH_MASK
    if isinstance(key, tuple):
        folded = 0
        for part in key:
            folded = (folded * 31 + hash32(part)) & HASH_MASK
        return folded
    raise TypeError(f"{type(key).__name__} cannot be a key here")


class _Leaf(Generic[K, V]):
    __slots__ = ("hash", "key", "rest", "value")

    def __init__(self, hash_: int, key: K, value: V, rest: tuple[tuple[K, V], ...] = ()) -> None:
        self.hash = hash_
        self.key = key
        self.value = value
        self.rest = rest

    def items(self) -> Iterator[tuple[K, V]]:
        yield self.key, self.value
        yield from self.rest


class _Branch(Generic[K, V]):
    __slots__ = ("bitmap", "slots")

    def __init__(self, bitmap: int, slots: "tuple[_Node[K, V], ...]") -> None:
        self.bitmap = bitmap
        self.slots = slots

    def items(self) -> Iterator[tuple[K, V]]:
        for slot in self.slots:
            yield from slot.items()


_Node = _Branch[K, V] | _Leaf[K, V]


class Change(NamedTuple, Generic[K, V]):
    """What became of a key; None stands for its absence, so maps that are compared hold no None."""

    key: K
    old: V | None
    new: V | None


class PersistentMap(Generic[K, V]):
    __slots__ = ("_root", "_size")

    def __init__(self, content: Mapping[K, V] | None = None) -> None:
        self._root: _Node[K, V] | None = None
        self._size = 0
        if content:
            for key, value in content.items():
                self._root = _put(self._root, 0, _Leaf(hash32(key), key, value))
            self._size = len(content)

    @classmethod
    def _made(cls, root: _Node[K, V] | None, size: int) -> "PersistentMap[K, V]":
        made = cls.__new__(cls)
        made._root = root
        made._size = size
        return made

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        node = self._root
        hashed = path = hash32(key)
        while type(node) is _Branch:
            bit = 1 << (path & SLOT_MASK)
            if not node.bitmap & bit:
                return default
            node = node.slots[(node.bitmap & (bit - 1)).bit_count()]
            path >>= BITS
        if node is None:
            return default
        leaf = cast("_Leaf[K, V]", node)
        if leaf.hash == hashed:
            if leaf.key == key:
                return leaf.value
            for each, value in leaf.rest:
                if each == key:
                    return value
        return default

    def __getitem__(self, key: K) -> V:
        value = self.get(key, _MISSING)
        if isinstance(value, _Missing):
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        return iter(()) if self._root is None else self._root.items()

    def values(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def set(self, key: K, value: V) -> "PersistentMap[K, V]":
        """A map with this key; the same one if nothing would differ."""
        before = self.get(key, _MISSING)
        if before is value:
            return self
        root = _put(self._root, 0, _Leaf(hash32(key), key, value))
        return self._made(root, self._size + (before is _MISSING))

    def delete(self, key: K) -> "PersistentMap[K, V]":
        """A map without this key; the same one if it was not there."""
        if self._root is None or key not in self:
            return self
        return self._made(_remove(self._root, 0, hash32(key), key), self._size - 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PersistentMap):
            return NotImplemented
        if self._root is other._root:
            return True
        return self._size == other._size and next(changes(self, other), None) is None

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"


def changes(old: PersistentMap[K, V], new: PersistentMap[K, V]) -> Iterator[Change[K, V]]:
    """Every key whose value differs; costs what differs, not what there is."""
    yield from _changes(old._root, new._root)


# --- inside ------------------------------------------------------------------------------------


def _put(node: _Node[K, V] | None, shift: int, leaf: _Leaf[K, V]) -> _Node[K, V]:
    if node is None:
        return leaf
    if isinstance(node, _Leaf):
        return _with_same_hash(node, leaf) if node.hash == leaf.hash else _join(shift, node, leaf)
    bit = 1 << ((leaf.hash >> shift) & SLOT_MASK)
    at = (node.bitmap & (bit - 1)).bit_count()
    slots = node.slots
    if node.bitmap & bit:
        child = _put(slots[at], shift + BITS, leaf)
        return _Branch(node.bitmap, (*slots[:at], child, *slots[at + 1 :]))
    return _Branch(node.bitmap | bit, (*slots[:at], leaf, *slots[at:]))


def _with_same_hash(old: _Leaf[K, V], leaf: _Leaf[K, V]) -> _Leaf[K, V]:
    if old.key == leaf.key:
        return _Leaf(old.hash, leaf.key, leaf.value, old.rest)
    others = tuple(each for each in old.items() if each[0] != leaf.key)
    return _Leaf(leaf.hash, leaf.key, leaf.value, others)


def _join(shift: int, one: _Leaf[K, V], other: _Leaf[K, V]) -> _Branch[K, V]:
    """The smallest branches that hold two leaves of different hashes."""
    at_one, at_other = (one.hash >> shift) & SLOT_MASK, (other.hash >> shift) & SLOT_MASK
    if at_one == at_other:
        return _Branch(1 << at_one, (_join(shift + BITS, one, other),))
    slots = (one, other) if at_one < at_other else (other, one)
    return _Branch(1 << at_one | 1 << at_other, slots)


def _remove(node: _Node[K, V], shift: int, hashed: int, key: K) -> _Node[K, V] | None:
    """The node without the key, which is in it."""
    if isinstance(node, _Leaf):
        left = tuple(each for each in node.items() if each[0] != key)
        return _Leaf(node.hash, left[0][0], left[0][1], left[1:]) if left else None
    bit = 1 << ((hashed >> shift) & SLOT_MASK)
    at = (node.bitmap & (bit - 1)).bit_count()
    child = _remove(node.slots[at], shift + BITS, hashed, key)
    if child is None:
        bitmap, slots = node.bitmap & ~bit, (*node.slots[:at], *node.slots[at + 1 :])
    else:
        bitmap, slots = node.bitmap, (*node.slots[:at], child, *node.slots[at + 1 :])
    if len(slots) == 1 and isinstance(slots[0], _Leaf):
        return slots[0]
    return _Branch(bitmap, slots)


def _changes(old: _Node[K, V] | None, new: _Node[K, V] | None) -> Iterator[Change[K, V]]:
    if old is new:
        return
    if isinstance(old, _Branch) and isinstance(new, _Branch):
        both = old.bitmap | new.bitmap
        while both:
            bit = both & -both
            both ^= bit
            yield from _changes(_slot(old, bit), _slot(new, bit))
        return
    # One of them is a leaf or nothing: all of the other, but for one key, is a difference anyway.
    before = dict(old.items()) if old is not None else {}
    after = dict(new.items()) if new is not None else {}
    for key, value in before.items():
        now = after.get(key)
        if now is not value and now != value:
            yield Change(key, value, now)
    for key, value in after.items():
        if key not in before:
            yield Change(key, None, value)


def _slot(branch: _Branch[K, V], bit: int) -> _Node[K, V] | None:
    if not branch.bitmap & bit:
        return None
    return branch.slots[(branch.bitmap & (bit - 1)).bit_count()]
