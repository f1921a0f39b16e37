"""Addresses in settings: listeners, quorum voters, and single `host:port` endpoints.

    listeners                  NAME://HOST:PORT,...      PLAINTEXT://127.0.0.1:9092
    controller.quorum.voters   ID@HOST:PORT,...          1@127.0.0.1:9093,2@127.0.0.1:9193
    control.listener and such  HOST:PORT                 [::1]:9093

An IPv6 address stands in brackets.  Port 0 asks for a free one.  A loopback address is reached only from the
machine itself; every other one is open to whoever can reach it, as long as there is no authentication.
"""

import re
from typing import Final, NamedTuple

from distributedlog.model.config import INT32_MAX
from distributedlog.model.errors import ConfigError

PORT_MAX: Final = 65535
HOST_LENGTH_MAX: Final = 253
ADDRESSES_MAX: Final = 100
NOWHERE: Final = "none"
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised here, bound only with --insecure
_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,99})://(.*)", re.ASCII | re.DOTALL)
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_ENDPOINT = re.compile(rf"(?:\[([0-9A-Fa-f:.%]+)\]|({_LABEL}(?:\.{_LABEL})*\.?)):([0-9]{{1,5}})", re.ASCII)
_VOTER = re.compile(r"([0-9]{1,10})@(.*)", re.ASCII | re.DOTALL)
_NOT_YET = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    name: str
    host: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}://{self.endpoint}"


class Voter(NamedTuple):
    node_id: int
    host: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.node_id}@{self.endpoint}"


def parse_endpoint(name: str, text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ConfigError(f"{name} cannot be {text[:80]!r}: write HOST:PORT, as in 127.0.0.1:9093")
    host, port = match.group(1) or match.group(2), int(match.group(3))
    if len(host) > HOST_LENGTH_MAX or port > PORT_MAX:
        raise ConfigError(f"{name} cannot be {text[:80]!r}: a port lies between 0 and {PORT_MAX}")
    return Endpoint(host, port)


def parse_optional_endpoint(name: str, text: str) -> Endpoint | None:
    return None if text == NOWHERE else parse_endpoint(name, text)


def parse_listeners(name: str, text: str) -> tuple[Listener, ...]:
    listeners = tuple(_parse_listener(name, part) for part in _parts(name, text))
    names = [listener.name for listener in listeners]
    if len(set(names)) < len(names):
        raise ConfigError(f"{name} is {text!r}: every listener needs a name of its own")
    ports = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(ports)) < len(ports):
        raise ConfigError(f"{name} is {text!r}: two listeners have the same address")
    return listeners


def _parse_listener(name: str, text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{name} cannot be {text[:80]!r}: write NAME://HOST:PORT, as in PLAINTEXT://127.0.0.1:9092"
        )
    listener = match.group(1).upper()
    if listener in _NOT_YET:
        raise ConfigError(f"{name}: there is no {listener} here yet; use PLAINTEXT")
    return Listener(listener, *parse_endpoint(name, match.group(2)))


def parse_voters(name: str, text: str) -> tuple[Voter, ...]:
    voters = []
    for part in _parts(name, text):
        match = _VOTER.fullmatch(part)
        if match is None or int(match.group(1)) > INT32_MAX:
            raise ConfigError(f"{name} cannot be {part[:80]!r}: write ID@HOST:PORT, as in 1@127.0.0.1:9093")
        voters.append(Voter(int(match.group(1)), *parse_endpoint(name, match.group(2))))
    if len({voter.node_id for voter in voters}) < len(voters):
        raise ConfigError(f"{name} is {text!r}: a node is named twice")
    return tuple(voters)


def _parts(name: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ConfigError(f"{name} is empty")
    if len(parts) > ADDRESSES_MAX:
        raise ConfigError(f"{name} has {len(parts)} addresses; at most {ADDRESSES_MAX}")
    return parts


def is_loopback(host: str) -> bool:
    if host in ("127.0.0.1", "localhost", "::1"):
        return True
    import ipaddress  # seldom needed, and not free to import

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
