"""Messages that carry their own version, as coordinators keep them in records and members give to each other.

    version i16 | body in that version

The keys of one internal topic share the numbers: a key's version says which kind of record it is.
"""

from struct import Struct as Layout
from typing import TypeVar, cast

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError
from distributedlog.protocol.codec import decode, decode_all, encode_bytes
from distributedlog.protocol.schema import Message

M = TypeVar("M", bound=Message)

_VERSION = Layout(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    return _VERSION.pack(version) + encode_bytes(message, version)


def version_of(data: Buffer) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessageError(f"{len(data)} bytes hold no version")
    return cast(int, _VERSION.unpack_from(data)[0])


def decode_versioned(message: type[M], data: Buffer) -> tuple[int, M]:
    """The version and the message, which fills the data."""
    version = version_of(data)
    return version, decode_all(message, version, data, _VERSION.size)


def decode_compatible(message: type[M], data: Buffer) -> M:
    """Decodes messages whose later versions only add fields: a newer one is read as the newest that is
    known."""
    version = min(version_of(data), message.versions[1])
    return decode(message, version, data, _VERSION.size)[0]
