"""What somebody may have meant who wrote a name that there is not."""

from collections.abc import Iterable
from typing import Final

NEAR_MAX: Final = 3
NEAR_ENOUGH: Final = 0.6
NAME_LENGTH_MAX: Final = 100


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Those most alike, the nearest first; none, if none is."""
    import difflib  # only for the one who mistyped

    return difflib.get_close_matches(name[:NAME_LENGTH_MAX], list(known), n=NEAR_MAX, cutoff=NEAR_ENOUGH)


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """For the end of an error: the names that are near, or what to do if none is."""
    near = near_names(name, known)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
