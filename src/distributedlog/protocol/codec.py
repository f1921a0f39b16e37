"""Messages to bytes and back.  The codec of a (message, version) is compiled when it is first used.

`encode` gives parts in the order of the wire; a payload is a part of its own and is not copied, so it must
not change until the parts are sent.  `decode` gives views of the input for payloads, so the input must live,
and not change, as long as the message; everything else is copied out of it.

Whatever the bytes are, `decode` gives a message or raises `MalformedMessageError`.
"""

import struct
from typing import TypeVar, cast

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError, UnsupportedVersionError
from distributedlog.protocol.decoder import DecoderCompiler
from distributedlog.protocol.encoder import EncoderCompiler
from distributedlog.protocol.kinds import Payload
from distributedlog.protocol.primitives import ELEMENTS_MAX
from distributedlog.protocol.schema import Decoder, Encoder, Message

M = TypeVar("M", bound=Message)

Part = Payload


def _check_version(message: type[Message], version: int) -> None:
    first, last = message.versions
    if not first <= version <= last:
        raise UnsupportedVersionError(f"{message.__name__} has the versions {first} to {last}, not {version}")


def encoder_of(message: type[Message], version: int) -> Encoder:
    """The function that writes this version.  It raises whatever a wrong value leads to; prefer `encode`."""
    encoder = message.encoders.get(version)
    if encoder is None:
        _check_version(message, version)
        encoder = cast(Encoder, EncoderCompiler(message, version).compile().function("encode"))
        message.encoders[version] = encoder
    return encoder


def decoder_of(message: type[Message], version: int) -> Decoder:
    """The function that reads this version.  It raises whatever wrong bytes lead to; prefer `decode`."""
    decoder = message.decoders.get(version)
    if decoder is None:
        _check_version(message, version)
        decoder = cast(Decoder, DecoderCompiler(message, version).compile().function("decode"))
        message.decoders[version] = decoder
    return decoder


def encode(message: Message, version: int) -> list[Part]:
    """The parts of the message.  Raises `MalformedMessageError` for a value that does not fit its field."""
    encoder = message.encoders.get(version) or encoder_of(type(message), version)
    try:
        return encoder(message)
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise MalformedMessageError(
            f"{type(message).__name__} cannot be written as version {version}: {error}"
        ) from error


def join_parts(parts: list[Part]) -> bytes:
    """The parts in one piece; payloads among them must be bytes."""
    return b"".join(cast(list[Buffer], parts))


def encode_bytes(message: Message, version: int) -> bytes:
    """The message in one piece; its payloads must be bytes."""
    return join_parts(encode(message, version))


def decode(
    message: type[M], version: int, buffer: Buffer, position: int = 0, *, elements_max: int = ELEMENTS_MAX
) -> tuple[M, int]:
    """The message at `position`, and where it ends.  It has at most `elements_max` array elements in all."""
    decoder = message.decoders.get(version) or decoder_of(message, version)
    try:
        return decoder(buffer, position, elements_max)
    except (struct.error, IndexError) as error:
        raise MalformedMessageError(f"{message.__name__} v{version} is cut short") from error
    except UnicodeDecodeError as error:
        raise MalformedMessageError(
            f"a string of {message.__name__} v{version} is not UTF-8: {error.reason}"
        ) from error


def decode_all(
    message: type[M], version: int, buffer: Buffer, position: int = 0, *, elements_max: int = ELEMENTS_MAX
) -> M:
    """The message that fills the rest of the buffer: bytes behind it are an error."""
    decoded, end = decode(message, version, buffer, position, elements_max=elements_max)
    if end != len(buffer):
        raise MalformedMessageError(f"{len(buffer) - end} bytes follow {message.__name__} v{version}")
    return decoded


def source_of(message: type[Message], version: int) -> str:
    """The compiled encoder and decoder as text, to read."""
    _check_version(message, version)
    sources = EncoderCompiler(message, version).compile(), DecoderCompiler(message, version).compile()
    return "\n\n".join(source.text() for source in sources)
