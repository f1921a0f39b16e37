"""A client that sends requests without waiting for the responses, on one connection."""

import socket
from collections.abc import Sequence
from types import TracebackType

from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import FrameReader, decode_response, encode_request
from distributedlog.protocol.registry import api_of
from distributedlog.protocol.schema import Message

Asked = tuple[Message, int]
"""A request and its version."""


class PipelinedClient:
    """A context manager.  Whatever does not come within `seconds_max` fails."""

    def __init__(self, address: str, seconds_max: float = 60) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=seconds_max)
        self._reader = FrameReader()
        self._frames: list[bytearray] = []
        self._sent = 0

    def __enter__(self) -> "PipelinedClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, *asked: Asked, silent: Sequence[Asked] = ()) -> list[Message]:
        """Sends all of them at once, in one piece, behind those that get no response; the responses, which
        come in their order."""
        first = self._sent
        self._sent += len(asked)
        numbered = [(-1, each) for each in silent] + list(enumerate(asked, first))
        self._socket.sendall(
            b"".join(
                join_parts(encode_request(request, version, number, "pipelined"))
                for number, (request, version) in numbered
            )
        )
        responses = []
        for number, (request, version) in enumerate(asked):
            response = api_of(request.api_key).response
            correlation_id, message = decode_response(response, version, self._receive())
            assert correlation_id == first + number
            responses.append(message)
        return responses

    def _receive(self) -> bytearray:
        while not self._frames:
            received = self._socket.recv(1 << 20)
            assert received, "the broker hung up"
            self._frames += self._reader.receive(received)
        return self._frames.pop(0)
