"""Frames and headers, without I/O.

    frame            size i32 | header | body
    request header   api key i16 | api version i16 | correlation id i32 | client id (length i16, UTF-8)
                     and in flexible versions (header version 2, else 1) a tagged section
    response header  correlation id i32, and in flexible versions (header version 1, else 0) a tagged section

The client id has its classic form in every version, so that a broker can read the header before it knows the
rest.  For the same reason an ApiVersions response always has header version 0.  (Request header version 0,
without a client id, was only ever used by one request between brokers, which is not spoken here.)

`FrameReader` splits a stream.  Every frame comes out as a bytearray of its own: it may be kept as long as its
views are in use, and be stamped in place.  The size is checked against the limit as soon as its four bytes
are there, and a frame's buffer grows with what has arrived: a claim alone gets no memory.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple, TypeVar, cast

from distributedlog.model.buffers import Buffer
from distributedlog.model.errors import MalformedMessageError
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.codec import Part, decode, encode
from distributedlog.protocol.primitives import ELEMENTS_MAX, read_unknown_tags
from distributedlog.protocol.registry import APIS, LOADED, api_of
from distributedlog.protocol.schema import Message

M = TypeVar("M", bound=Message)

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
RECEIVE_BYTES: Final = 64 * 1024
"""How much is received at once where no frame is under way, and the least room a begun frame is given."""
FIRST_PART_BYTES_MAX: Final = 4096
"""The length up to which the first part is copied behind the header: one part less to send."""

_ZEROS: Final = memoryview(bytes(1 << 20))
"""What frames grow by, and at most at a time.  Zeros made anew would cost new pages of memory each time."""
_SIZE = Layout(">i")
_REQUEST = Layout(">hhih")
_SIZED_REQUEST = Layout(">ihhih")
_RESPONSE = Layout(">i")
_SIZED_RESPONSE = Layout(">ii")
_SIZED_TAGGED_RESPONSE = Layout(">iix")
_NO_TAGS = b"\x00"
_API_VERSIONS = int(ApiKey.API_VERSIONS)


# --- headers -----------------------------------------------------------------------------------


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    return 2 if api_version >= api_of(api_key).flexible_since else 1


def response_header_version(api_key: int, api_version: int) -> int:
    if api_key == _API_VERSIONS:
        return 0
    return 1 if api_version >= api_of(api_key).flexible_since else 0


def _skip_tags(buffer: Buffer, position: int) -> int:
    """Returns the place behind a header's tagged section.  None of its fields is known, and so none is
    kept."""
    if position >= len(buffer):
        raise MalformedMessageError("a header is cut short")
    first = buffer[position]
    if first == 0:
        return position + 1
    try:
        return read_unknown_tags(buffer, position + 1, len(buffer), first, ELEMENTS_MAX)[1]
    except IndexError as error:
        raise MalformedMessageError("the tagged fields of a header are cut short") from error


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header, and where the body begins.

    Raises `UnsupportedVersionError` for an API that is unknown here: its header's form is unknown too.  A
    version that is out of range is no error yet, since an ApiVersions request must be answered nevertheless.
    """
    if len(frame) < _REQUEST.size:
        raise MalformedMessageError(f"a request of {len(frame)} bytes has no whole header")
    api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
    api = LOADED.get(api_key) or api_of(api_key)
    position = _REQUEST.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise MalformedMessageError(f"a client id of {length} bytes is cut short")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"a client id is not UTF-8: {error.reason}") from error
        position = end
    elif length != -1:
        raise MalformedMessageError(f"a client id has the length {length}")
    if api_version >= api.flexible_since:
        position = _skip_tags(frame, position)
    # Past the constructor, which costs several times as much; this runs for every request.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id)), position


def decode_correlation_id(frame: Buffer) -> int:
    """Decodes the correlation id of a response whose request, and so whose version, is yet to be looked
    up."""
    if len(frame) < _RESPONSE.size:
        raise MalformedMessageError(f"a response of {len(frame)} bytes has no whole header")
    return cast(int, _RESPONSE.unpack_from(frame)[0])


# --- whole messages ----------------------------------------------------------------------------


def decode_request(frame: Buffer, *, elements_max: int = ELEMENTS_MAX) -> tuple[RequestHeader, Message]:
    """A frame's header and body.  Bytes behind the body are let pass, as Kafka does."""
    header, position = decode_request_header(frame)
    request = APIS[header.api_key].request
    return header, decode(request, header.api_version, frame, position, elements_max=elements_max)[0]


def decode_response(
    response: type[M], api_version: int, frame: Buffer, *, elements_max: int = ELEMENTS_MAX
) -> tuple[int, M]:
    """The correlation id and the body."""
    correlation_id = decode_correlation_id(frame)
    position = _RESPONSE.size
    if response_header_version(response.api_key, api_version) == 1:
        position = _skip_tags(frame, position)
    return correlation_id, decode(response, api_version, frame, position, elements_max=elements_max)[0]


def _with_head(head: bytes, parts: list[Part]) -> list[Part]:
    if parts and isinstance(parts[0], bytes) and len(parts[0]) <= FIRST_PART_BYTES_MAX:
        parts[0] = head + parts[0]
    else:
        parts.insert(0, head)
    return parts


def encode_request(
    request: Message, api_version: int, correlation_id: int, client_id: str | None = None
) -> list[Part]:
    """The frame in parts, its size in front."""
    parts = encode(request, api_version)
    name = b"" if client_id is None else client_id.encode()
    if len(name) > 32767:
        raise MalformedMessageError(f"a client id of {len(name)} bytes is too long")
    tail = _NO_TAGS if request_header_version(request.api_key, api_version) == 2 else b""
    size = _REQUEST.size + len(name) + len(tail) + sum(map(len, parts))
    length = -1 if client_id is None else len(name)
    head = _SIZED_REQUEST.pack(size, request.api_key, api_version, correlation_id, length)
    return _with_head(head + name + tail, parts)


def encode_response(response: Message, api_version: int, correlation_id: int) -> list[Part]:
    """The frame in parts, its size in front."""
    parts = encode(response, api_version)
    # A response is flexible in the versions in which its request is.
    has_tags = api_version >= response.flexible_since and response.api_key != _API_VERSIONS
    layout = _SIZED_TAGGED_RESPONSE if has_tags else _SIZED_RESPONSE
    if len(parts) == 1 and len(parts[0]) <= FIRST_PART_BYTES_MAX:  # as nearly all are
        body = cast(bytes, parts[0])
        return [layout.pack(layout.size - _SIZE.size + len(body), correlation_id) + body]
    size = layout.size - _SIZE.size + sum(map(len, parts))
    return _with_head(layout.pack(size, correlation_id), parts)


# --- the stream --------------------------------------------------------------------------------


class FrameReader:
    """Splits a stream into frames.

    Either give it what was received (`receive`), or let the transport receive into its buffer (`get_buffer`,
    `buffer_updated`, which are what asyncio's buffered protocol wants): then a large frame is never copied.
    After a frame that is too large nothing can be read any more: `failure` says why.  It is raised at once if
    no whole frame came before it, and otherwise at the next call, so that those can still be served.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.failure: MalformedMessageError | None = None
        self._size_bytes = bytearray()
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0
        self._scratch = bytearray(RECEIVE_BYTES)
        self._lent: memoryview | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the frame under way."""
        return len(self._size_bytes) + self._filled

    def receive(self, data: Buffer) -> list[bytearray]:
        """The frames that `data` completes."""
        self._raise_failure()
        frames: list[bytearray] = []
        view = memoryview(data)
        position = 0
        while position < len(view) and self.failure is None:
            if self._frame is not None:
                position = self._fill(view, position, frames)
            elif not self._size_bytes and len(view) - position >= 4:
                (size,) = _SIZE.unpack_from(view, position)
                position = self._begin(size, view, position + 4, frames)
            else:
                position = self._receive_size(view, position, frames)
        if not frames:
            self._raise_failure()
        return frames

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _receive_size(self, view: memoryview, position: int, frames: list[bytearray]) -> int:
        end = min(len(view), position + 4 - len(self._size_bytes))
        self._size_bytes += view[position:end]
        if len(self._size_bytes) < 4:
            return end
        (size,) = _SIZE.unpack_from(self._size_bytes)
        self._size_bytes.clear()
        return self._begin(size, view, end, frames)

    def _begin(self, size: int, view: memoryview, position: int, frames: list[bytearray]) -> int:
        if not 0 <= size <= self.frame_bytes_max:
            self.failure = MalformedMessageError(
                f"a frame claims {size} bytes; at most {self.frame_bytes_max} are allowed"
            )
            return position
        end = position + size
        if end <= len(view):
            frames.append(bytearray(view[position:end]))
            return end
        self._frame = bytearray(view[position:])
        self._frame_size = size
        self._filled = len(self._frame)
        return len(view)

    def _fill(self, view: memoryview, position: int, frames: list[bytearray]) -> int:
        frame = cast(bytearray, self._frame)
        end = min(len(view), position + self._frame_size - self._filled)
        # Cut to what is filled first: `get_buffer` may have made room behind it.
        frame[self._filled :] = view[position:end]
        self._filled += end - position
        self._end_frame(frames)
        return end

    def _end_frame(self, frames: list[bytearray]) -> None:
        if self._frame is not None and self._filled == self._frame_size:
            frames.append(self._frame)
            self._frame = None
            self._filled = 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Returns where to receive into.  Not empty, and good until `buffer_updated`."""
        self._raise_failure()
        self._release()
        if self._frame is None:
            self._lent = memoryview(self._scratch)
            return self._lent
        room = min(self._frame_size, max(2 * self._filled, RECEIVE_BYTES))
        while len(self._frame) < room:
            self._frame += _ZEROS[: room - len(self._frame)]
        self._lent = memoryview(self._frame)[self._filled :]
        return self._lent

    def buffer_updated(self, count: int) -> list[bytearray]:
        """The frames that are complete now that `count` bytes were put into the buffer."""
        self._release()
        if self._frame is None:
            return self.receive(memoryview(self._scratch)[:count])
        frames: list[bytearray] = []
        self._filled += count
        self._end_frame(frames)
        return frames

    def _release(self) -> None:
        if self._lent is not None:
            self._lent.release()
            self._lent = None
