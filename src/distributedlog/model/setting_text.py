"""How the text of a setting becomes a value, as Kafka reads it.

Whatever stands around a value is trimmed.  Text is bounded before it is parsed: a number has so many digits
that every one of 64 bits can be written.  Numbers may have a sign, and those with a fraction an `f` or `d`
at their end, as in Java (`0.5f`).
"""

import re
from typing import Final

from distributedlog.model.errors import ConfigError

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(
    r"([+-]?(?:[0-9]{1,19}(?:\.[0-9]{0,19})?|\.[0-9]{1,19})(?:[eE][+-]?[0-9]{1,3})?)[fFdD]?", re.ASCII
)
_QUOTED_LENGTH_MAX: Final = 80


def read_whole_number(name: str, text: str) -> int:
    digits = text.strip()
    if not _WHOLE_NUMBER.fullmatch(digits):
        raise ConfigError(f"{name} cannot be {quote(text)}: it is a whole number")
    return int(digits)


def read_number(name: str, text: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{name} cannot be {quote(text)}: it is a number")
    return float(match[1])


def read_boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name} cannot be {quote(text)}: it is true or false")
    return word == "true"


def read_list(name: str, text: str) -> tuple[str, ...]:
    """Nothing at all is the empty list; between commas there must be something."""
    if not text.strip():
        return ()
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ConfigError(f"{name} cannot be {quote(text)}: an item of the list is empty")
    return parts


def quote(text: str) -> str:
    """The text as an error tells it, and not at length."""
    return repr(text if len(text) <= _QUOTED_LENGTH_MAX else text[:_QUOTED_LENGTH_MAX] + "…")
