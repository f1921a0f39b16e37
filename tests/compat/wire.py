"""So much of Kafka's protocol as it takes to put raw batches into a broker and to get them out again.

Produce version 3 and Fetch version 4, the first that carry v2 batches.  A request is a length, a header
(api, version, correlation id, client id) and the fields; see Kafka's protocol guide for both.
"""

import socket
import struct
from types import TracebackType

PRODUCE, FETCH = 0, 1
CLIENT_ID = b"raw"


class RawConnection:
    def __init__(self, host: str, port: int, timeout_s: float = 10) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def produce(self, topic: str, partition: int, batch: bytes) -> int:
        """Appends a batch and returns its base offset."""
        body = struct.pack(">hhii", -1, -1, 10_000, 1) + _text(topic) + struct.pack(">i", 1)
        body += struct.pack(">ii", partition, len(batch)) + batch
        answer = self._call(PRODUCE, 3, body)
        at = 4 + 2 + len(topic.encode()) + 4
        _, error_code, base_offset = struct.unpack_from(">ihq", answer, at)
        assert error_code == 0, f"the broker refused the batch with error {error_code}"
        return int(base_offset)

    def fetch(self, topic: str, partition: int, offset: int = 0) -> bytes:
        """The batches from `offset` on, as they lie in the log."""
        body = struct.pack(">iiiib", -1, 1000, 1, 1 << 24, 0) + struct.pack(">i", 1) + _text(topic)
        body += struct.pack(">iiqi", 1, partition, offset, 1 << 24)
        answer = self._call(FETCH, 4, body)
        at = 4 + 4 + 2 + len(topic.encode()) + 4
        _, error_code, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        assert error_code == 0, f"the broker refused the fetch with error {error_code}"
        at += 26 + 16 * max(0, aborted)
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + size]

    def _call(self, api: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        header = struct.pack(">hhih", api, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        assert struct.unpack_from(">i", answer) == (self._correlation_id,)
        return answer[4:]

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            assert piece, "the broker closed the connection"
            received += piece
        return bytes(received)


def _text(text: str) -> bytes:
    coded = text.encode()
    return struct.pack(">h", len(coded)) + coded
