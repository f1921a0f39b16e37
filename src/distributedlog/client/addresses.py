"""Bootstrap lists: `host:port,host:port`, with `[…]` around an IPv6 address.  Pure."""

import re
from typing import Final, NamedTuple

from distributedlog.model.errors import ConfigError

PORT_DEFAULT: Final = 9092
ADDRESSES_MAX: Final = 1000

_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>[^\s:/\[\]]+))(?::(?P<port>[0-9]{1,5}))?"
)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"] or PORT_DEFAULT) if match is not None else 0
    if match is None or not 0 < port < 65536:
        raise ConfigError(f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:9092")
    return Address(match["six"] or match["name"], port)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """The addresses, each once, in the order in which they stand."""
    words = [word.strip() for word in text.split(",", ADDRESSES_MAX)]
    if len(words) > ADDRESSES_MAX:
        raise ConfigError(f"a bootstrap list has at most {ADDRESSES_MAX} addresses")
    found = tuple(dict.fromkeys(parse_address(word) for word in words if word))
    if not found:
        raise ConfigError("the bootstrap list is empty: write HOST:PORT, such as 127.0.0.1:9092")
    return found
