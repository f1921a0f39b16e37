"""A client that does nothing wrong, while others do: `python -m tests.system.good_client HOST:PORT TOPIC`.

A process of its own, so that its times are the broker's and not those of the enemies beside it.  Every few
milliseconds it writes one record and reads that very record back; every so often on a new connection.  An
operation that fails, or brings something else than was written, is a failure and is told.

    stdin     a line names the phase that begins
    stdout    a line of JSON for the phase that ended
    end of stdin ends it
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final, cast

from distributedlog.client.connection import Connection, connect
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from distributedlog.records.record import Record, decode_batch, encode_batch

PACE_SECONDS: Final = 0.005
NEW_CONNECTION_EVERY: Final = 10
TIMEOUT_MS: Final = 30_000
PRODUCE_VERSION, FETCH_VERSION = 9, 12


@dataclass
class Phase:
    name: str
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        ordered = sorted(self.seconds) or [0.0]

        def at(part: float) -> float:
            return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e3

        return {
            "phase": self.name,
            "operations": len(self.seconds),
            "failures": self.failures[:3],
            "p50_ms": at(0.5),
            "p99_ms": at(0.99),
            "max_ms": at(1.0),
        }


class GoodClient:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._address = (host, port)
        self._topic = topic
        self._connection: Connection | None = None
        self._written = 0

    async def operate(self) -> None:
        """One record there and back."""
        if self._written % NEW_CONNECTION_EVERY == 0 and self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = await connect(
                *self._address, client_id="good", timeout_ms=TIMEOUT_MS, frame_bytes_max=1 << 20
            )
        self._written += 1
        value = b"record %d" % self._written
        offset = await self._produce(self._connection, value)
        found = await self._fetch(self._connection, offset)
        if found != value:
            raise AssertionError(f"{value!r} was written at {offset}, {found!r} was read")

    async def _produce(self, connection: Connection, value: bytes) -> int:
        batch = bytes(encode_batch([Record(value, timestamp_ms=time.time_ns() // 1_000_000)]))
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=self._topic, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        response = await connection.call(
            request, ProduceResponse, timeout_ms=TIMEOUT_MS, version=PRODUCE_VERSION
        )
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise AssertionError(f"refused with {answer.error_code}: {answer.error_message}")
        return answer.base_offset

    async def _fetch(self, connection: Connection, offset: int) -> bytes | None:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 16)
        topic = FetchTopic(topic=self._topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=TIMEOUT_MS // 2, min_bytes=1, max_bytes=1 << 16, topics=[topic])
        response = await connection.call(request, FetchResponse, timeout_ms=TIMEOUT_MS, version=FETCH_VERSION)
        answer = response.responses[0].partitions[0]
        if answer.error_code or not answer.records:
            raise AssertionError(f"a fetch came to {answer.error_code}, {response.error_code}")
        return decode_batch(cast(memoryview, answer.records))[0].value

    async def try_to(self, phase: Phase) -> None:
        began = time.perf_counter()
        try:
            await self.operate()
        except (DlogError, AssertionError, OSError, TimeoutError) as error:
            phase.failures.append(repr(error))
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        phase.seconds.append(time.perf_counter() - began)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def main() -> None:
    address, topic = sys.argv[1:]
    host, _, port = address.rpartition(":")
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    client = GoodClient(host, int(port), topic)
    phase = Phase("warm-up")
    line = asyncio.ensure_future(reader.readline())
    while True:
        await client.try_to(phase)
        done, _ = await asyncio.wait([line], timeout=PACE_SECONDS)
        if done:
            print(json.dumps(phase.report()), flush=True)
            name = line.result().decode().strip()
            if not name:
                break
            phase = Phase(name)
            line = asyncio.ensure_future(reader.readline())
    client.close()


if __name__ == "__main__":
    asyncio.run(main())
