"""What somebody may have meant who wrote a name that there is not."""

from collections.abc import Iterable
from typing import Final

NEAR_MAX: Final = 3
NEAR_ENOUGH: Final = 0.6
SURELY_MEANT: Final = 0.8
NAME_LENGTH_MAX: Final = 100


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one that was surely meant; None if none was."""
    found = _close(name, known, 1, SURELY_MEANT)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Spells the end of an error: the names that are near, the nearest first, or what to do if none is."""
    near = _close(name, known, NEAR_MAX, NEAR_ENOUGH)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def _close(name: str, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    import difflib  # only for the one who mistyped

    return difflib.get_close_matches(name[:NAME_LENGTH_MAX], list(known), n=most, cutoff=cutoff)
