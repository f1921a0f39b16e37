"""What a setting is: its name, type, bounds and documentation, and how its text becomes a value.

Every setting has one text form, Kafka's, whichever way it is given (a file, `--set`, the environment, an
admin request), so that one parser checks them all.  Which settings there are is `settings`' matter.

Text is bounded before it is parsed, and a number before it is used.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from distributedlog.model.config import INT32_MAX, INT64_MAX
from distributedlog.model.errors import ConfigError
from distributedlog.model.setting_text import quote, read_boolean, read_list, read_number, read_whole_number

SETTING_TEXT_LENGTH_MAX: Final = 32_000


class Kind(IntEnum):
    """The type of a setting, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


KIND_WORDS: Final = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "text",
    Kind.INT: "a whole number",
    Kind.SHORT: "a whole number",
    Kind.LONG: "a whole number",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a list with commas",
}


WHOLE_NUMBERS: Final = frozenset({Kind.INT, Kind.SHORT, Kind.LONG})
NUMBERS: Final = WHOLE_NUMBERS | {Kind.DOUBLE}


class Setting(NamedTuple):
    """One setting, as it is declared."""

    name: str
    field: str
    """The field of NodeSettings, or of LogConfig if `is_log`."""
    kind: Kind
    default: Any
    documentation: str
    section: str
    low: int | float | None = None
    high: int | float | None = None
    choices: tuple[str, ...] = ()
    is_dynamic: bool = False
    """May be changed while the broker runs."""
    is_cluster_wide: bool = False
    """The whole cluster has one value, in its metadata; what a controller is given is what it is formatted
    with."""
    is_log: bool = False
    """A default for the topics that do not say otherwise."""
    topic_name: str | None = None
    """What a topic calls the setting of which this is the default."""
    parse: Callable[[str], Any] | None = None
    """The parser of values that are more than a number or a word."""
    synonyms: tuple[tuple[str, int], ...] = ()
    """Other names in coarser units, and how many of ours are one of theirs; the finest given one counts."""
    default_text: str = ""
    """How the default is described where it depends on other settings."""

    def read(self, text: str) -> Any:
        """The value that the text stands for."""
        if len(text) > SETTING_TEXT_LENGTH_MAX:
            raise ConfigError(f"{self.name} has {len(text)} characters; at most {SETTING_TEXT_LENGTH_MAX}")
        text = text.strip()
        value = self.parse(text) if self.parse is not None else self._read_plain(text)
        self._check(value, text)
        return value

    def read_synonym(self, synonym: str, factor: int, text: str) -> int:
        """A coarser unit; zero and below mean what they mean in the finest one."""
        number = read_whole_number(synonym, text)
        value = number * factor if number > 0 else number
        low, high = self.bounds
        if not low <= value <= high:
            raise ConfigError(f"{synonym} is {number}; it must lie between {low} and {int(high) // factor}")
        return value

    def _read_plain(self, text: str) -> Any:
        if self.kind in WHOLE_NUMBERS:
            return read_whole_number(self.name, text)
        if self.kind is Kind.DOUBLE:
            return read_number(self.name, text)
        if self.kind is Kind.BOOLEAN:
            return read_boolean(self.name, text)
        if self.kind is Kind.LIST and self.is_log:
            return read_list(self.name, text)
        if self.kind is Kind.LIST:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return text

    def _check(self, value: Any, text: str) -> None:
        if self.kind in NUMBERS and value is not None:
            low, high = self.bounds
            if not low <= value <= high:
                raise ConfigError(f"{self.name} is {value}; it must lie between {low} and {high}")
        if self.choices:
            given = value if isinstance(value, tuple | frozenset) else (value,)
            if (not given and not self.is_log) or any(part not in self.choices for part in given):
                raise ConfigError(
                    f"{self.name} cannot be {quote(text)}: it must be of {', '.join(self.choices)}"
                )

    @property
    def bounds(self) -> tuple[int | float, int | float]:
        widest = INT32_MAX if self.kind is Kind.INT else INT64_MAX
        return (-widest if self.low is None else self.low), (widest if self.high is None else self.high)

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return environment_name(self.name)


def environment_name(name: str) -> str:
    return "DLOG_" + name.upper().replace(".", "_")


def spell(value: Any) -> str | None:
    """A value as the text that would be read as it; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is tuple:  # an address is a tuple too, but has a spelling of its own
        return ",".join(str(part) for part in value)
    if isinstance(value, frozenset):
        return ",".join(sorted(str(part) for part in value))
    return str(value)
