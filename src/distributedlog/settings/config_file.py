"""A settings file: TOML, of which only names and texts are taken.

`a.b.c = 1`, `"a.b.c" = 1` and `[a.b]` with `c = 1` mean the same.  What the names mean, and whether the texts
are right, is not known here.  The file's size is bounded before it is read.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from distributedlog.model.config import MIB
from distributedlog.model.errors import ConfigError
from distributedlog.settings.schema import spell

CONFIG_FILE_BYTES_MAX: Final = 1 * MIB


def read_config_file(path: str) -> dict[str, str]:
    """Names and texts of a TOML file, whichever way its names are written."""
    import tomllib  # a node made with --set alone has no need of it

    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > CONFIG_FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {CONFIG_FILE_BYTES_MAX} bytes: that is no settings file")
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}; text stands in quotes, and of two names of which one begins "
            'with the other ("max.connections" and "max.connections.per.ip") both do'
        ) from None
    found: dict[str, str] = {}
    _flatten(path, "", tables, found)
    return found


def _flatten(path: str, prefix: str, table: Mapping[str, Any], found: dict[str, str]) -> None:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            _flatten(path, f"{name}.", value, found)
        elif name in found:
            raise ConfigError(f"{path}: {name} is set twice")
        else:
            found[name] = _text_of(path, name, value)


def _text_of(path: str, name: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str | int) for part in value):
        return ",".join(_text_of(path, name, part) for part in value)
    if isinstance(value, bool | int | float | str):
        return cast(str, spell(value))
    raise ConfigError(
        f"{path}: {name} cannot be a {type(value).__name__}; write text, a number, true or false"
    )
