"""Which classes carry which API, and in which versions we have them.

Key, module and class are one name in three spellings: LIST_OFFSETS, messages/list_offsets.py,
ListOffsetsRequest.  A module is imported when its API is first asked for: a program that speaks to a few of
them need not wait for all.

The ranges are those of the messages here, which may exceed what a broker serves: it advertises what it has
handlers for.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final, NamedTuple

from distributedlog.model.errors import UnsupportedVersionError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.schema import Message, VersionRange

MESSAGES: Final = "distributedlog.protocol.messages"


class Api(NamedTuple):
    key: ApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> VersionRange:
        return self.request.versions

    @property
    def flexible_since(self) -> int:
        return self.request.flexible_since


LOADED: Final[dict[int, Api]] = {}
"""Those that were asked for: look here first where time matters."""


class _Apis(Mapping[int, Api]):
    def __getitem__(self, key: int) -> Api:
        api = LOADED.get(key)
        if api is None:
            api = LOADED[key] = _load(key)
        return api

    def __iter__(self) -> Iterator[int]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)


def _load(key: int) -> Api:
    try:
        known = ApiKey(key)
    except ValueError as error:
        raise KeyError(key) from error
    module = import_module(f"{MESSAGES}.{known.name.lower()}")
    name = known.name.title().replace("_", "")
    return Api(known, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))


APIS: Final[Mapping[int, Api]] = _Apis()


def api_of(key: int) -> Api:
    try:
        return APIS[key]
    except KeyError as error:
        raise UnsupportedVersionError(f"there is no API with the key {key} here") from error
