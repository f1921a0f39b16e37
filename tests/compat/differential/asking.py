"""A conversation with one broker: what a probe needs is made, questions are asked, and each answer is noted.

Each probe has its own connection, and topics and groups under its own names, the same on both brokers.  What
is made for a question is waited for until it is there, and is not compared; what `ask` asks is.

An answer that does not come is noted as what came instead: `closed` when the broker hung up, `silent` when it
said nothing for `SECONDS_MAX`.
"""

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from distributedlog.model.errors import MalformedMessageError
from distributedlog.model.ids import Uuid
from distributedlog.protocol.codec import decode, encode_bytes, join_parts
from distributedlog.protocol.framing import encode_request, request_header_version, response_header_version
from distributedlog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.protocol.registry import APIS
from distributedlog.protocol.schema import Message
from tests.compat.differential.trees import ID_OF, Symbols, Tree, tree_of

M = TypeVar("M", bound=Message)

SECONDS_MAX: Final = 10.0
SETTLE_SECONDS_MAX: Final = 15.0
AGAIN_SECONDS: Final = 0.02
CLIENT_ID: Final = "probe"
CLOSED: Final = {"no answer": "closed"}
SILENT: Final = {"no answer": "silent"}
CORRELATION_ID: Final = 7
_SIZE: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhih")


class Step(NamedTuple):
    """One question and what came of it."""

    api: int
    version: int
    label: str
    answer: Tree


class Topic(NamedTuple):
    name: str
    id: Uuid


class ClosedError(Exception):
    """The broker hung up."""


class Conversation:
    def __init__(self, port: int, prefix: str, started_ms: int) -> None:
        self.prefix = prefix
        """Begins the name of everything that this probe makes; no other probe has it."""
        self.started_ms = started_ms
        """When the run began: the time of records, the same for both brokers."""
        self.steps: list[Step] = []
        self.symbols = Symbols()
        self._port = port
        self._socket: socket.socket | None = None
        self._topics = 0

    # --- asking ------------------------------------------------------------------------------

    def ask(
        self, label: str, request: Message, version: int, *, keep: Callable[[Tree], Tree] | None = None
    ) -> Any:
        """The answer, None if there is none; `keep` takes from it what belongs to this probe."""
        frame = join_parts(encode_request(request, version, CORRELATION_ID, CLIENT_ID))
        response = APIS[request.api_key].response
        message: Message | None = None
        try:
            message = self._decoded(response, version, self._exchange(frame))
            answer = tree_of(message, version, self.symbols)
        except ClosedError:
            answer = CLOSED
        except TimeoutError:
            answer = SILENT
            self.close()
        if keep is not None and message is not None:
            answer = keep(answer)
        self.steps.append(Step(request.api_key, version, label, answer))
        return message

    def ask_raw(
        self,
        label: str,
        api_key: int,
        version: int,
        body: bytes,
        *,
        flexible: bool,
        answered: int | None = None,
    ) -> None:
        """A request by its bytes; if it is answered, the answer is read as version `answered`."""
        tail = b"\x00" if flexible else b""
        header = _HEADER.pack(api_key, version, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID.encode() + tail
        frame = _SIZE.pack(len(header) + len(body)) + header + body
        try:
            came = self._exchange(frame)
        except ClosedError:
            answer = CLOSED
        except TimeoutError:
            answer = SILENT
            self.close()
        else:
            if answered is None:
                answer = {"answer": bytes(came).hex()}
            else:
                message = self._decoded(APIS[api_key].response, answered, came)
                answer = tree_of(message, answered, self.symbols)
        self.steps.append(Step(api_key, version, label, answer))

    def send(self, request: Message, version: int) -> None:
        """What gets no answer."""
        self._connected().sendall(join_parts(encode_request(request, version, CORRELATION_ID, CLIENT_ID)))

    def call(self, request: Message, version: int, response: type[M]) -> M:
        """Asks without noting the answer."""
        return self._decoded(
            response, version, self._exchange(join_parts(encode_request(request, version, 7, CLIENT_ID)))
        )

    def call_until(
        self, request: Message, version: int, response: type[M], is_settled: Callable[[M], bool]
    ) -> M:
        """Asks again and again until the answer is as wanted, or the time is up."""
        give_up = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            answer = self.call(request, version, response)
            if is_settled(answer) or time.monotonic() > give_up:
                return answer
            time.sleep(AGAIN_SECONDS)

    def body_of(self, request: Message, version: int) -> tuple[bytes, bool]:
        """The request without its header, and whether that header is of the flexible form."""
        return encode_bytes(request, version), request_header_version(request.api_key, version) == 2

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), SECONDS_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _exchange(self, frame: bytes) -> bytes:
        connection = self._connected()
        try:
            connection.sendall(frame)
            size = _SIZE.unpack(self._read(connection, _SIZE.size))[0]
            return self._read(connection, size)
        except (ConnectionError, ClosedError) as error:
            self.close()
            raise ClosedError from error

    def _read(self, connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = connection.recv(size - len(data))
            if not more:
                raise ClosedError
            data += more
        return bytes(data)

    def _decoded(self, response: type[M], version: int, frame: bytes) -> M:
        """The whole of the frame: bytes behind the answer would be a field that nobody compared."""
        assert _SIZE.unpack_from(frame)[0] == CORRELATION_ID
        position = _SIZE.size
        if response_header_version(response.api_key, version) == 1:
            assert frame[position] == 0, "a response header has tagged fields"
            position += 1
        message, end = decode(response, version, frame, position)
        if end != len(frame):
            raise MalformedMessageError(f"{len(frame) - end} bytes follow {response.__name__} v{version}")
        return message

    # --- making ------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        return f"{self.prefix}-{what}"

    def topic(
        self,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] = (),
    ) -> Topic:
        """A new topic, once its partitions are led."""
        self._topics += 1
        name = self.name(f"t{self._topics}")
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else 1,
            assignments=[
                CreatableReplicaAssignment(partition_index=at, broker_ids=list(brokers))
                for at, brokers in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        (made,) = self.call(
            CreateTopicsRequest(topics=[wanted], timeout_ms=15_000), 7, CreateTopicsResponse
        ).topics
        assert made.error_code == 0, f"{name} could not be made: {made.error_message}"
        self.symbols.give("uuid", made.topic_id, ID_OF + name)
        self.wait_until_led(name, partitions)
        return Topic(name, made.topic_id)

    def wait_until_led(self, name: str, partitions: int) -> None:
        asked = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        answer = self.call_until(request, 7, ListOffsetsResponse, _is_without_error)
        assert _is_without_error(answer), f"{name} has no leader"

    def append(self, topic: Topic, *batches: bytes, partition: int = 0) -> None:
        """Batches that must be taken, one request for each, with acks=all."""
        for batch in batches:
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(name=topic.name, partition_data=[data])],
            )
            (answer,) = self.call(request, 9, ProduceResponse).responses
            (taken,) = answer.partition_responses
            assert taken.error_code == 0, f"a batch for {topic.name} was refused: {taken.error_code}"


def _is_without_error(answer: ListOffsetsResponse) -> bool:
    return all(not each.error_code for topic in answer.topics for each in topic.partitions)
