"""What happened in a run, in order.  Kept as tuples, and made readable only when somebody reads it."""

import hashlib
from collections.abc import Iterator

from distributedlog.raft import RaftConfig, codec

_CONFIG = RaftConfig()


class Trace:
    def __init__(self) -> None:
        self._events: list[tuple[int, str, object, object]] = []

    def add(self, time_us: int, what: str, who: object = "", details: object = "") -> None:
        self._events.append((time_us, what, who, details))

    def lines(self, last: int | None = None) -> Iterator[str]:
        events = self._events if last is None else self._events[-last:]
        for time_us, what, who, details in events:
            yield f"{time_us / 1e6:12.6f}  {who!s:>6}  {what} {_spell(details)}".rstrip()

    def told_by(self, who: str) -> set[str]:
        """What one teller told, without the details."""
        return {what for _, what, teller, _ in self._events if teller == who}

    def digest(self) -> str:
        """A hash over every line: two runs are the same if and only if this is."""
        state = hashlib.sha256()
        for line in self.lines():
            state.update(line.encode() + b"\n")
        return state.hexdigest()

    def __len__(self) -> int:
        return len(self._events)


def _spell(details: object) -> str:
    if isinstance(details, bytes):
        return _spell_message(details)
    if isinstance(details, tuple):
        return " ".join(map(_spell, details))
    return str(details)


def _spell_message(data: bytes) -> str:
    message = codec.decode(data, _CONFIG)
    parts = [
        f"{name}={_short(value)}" for name, value in message._asdict().items() if name not in ("sender", "to")
    ]
    return f"{type(message).__name__}({', '.join(parts)})"


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return (
            "["
            + " ".join(
                f"{entry.index}.{entry.term}:{entry.kind.name[0]}{entry.payload.hex()[-4:]}"
                for entry in value
            )
            + "]"
        )
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)
