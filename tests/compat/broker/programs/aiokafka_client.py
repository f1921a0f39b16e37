"""aiokafka as a client program: `python -m tests.compat.broker.programs.aiokafka_client BOOTSTRAP`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.compat.broker.programs.lines import (
    TIMEOUT_SECONDS,
    Answer,
    Operation,
    RefusedError,
    Request,
    as_record,
    headers_of,
    serve,
    to_bytes,
)


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._servers: dict[str, Any] = {"bootstrap_servers": bootstrap}

    async def produce(self, request: Request) -> Answer:
        acks = request["acks"]
        producer = AIOKafkaProducer(
            **self._servers,
            compression_type=None if request["codec"] == "none" else request["codec"],
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=request["idempotent"],
            max_request_size=request["bytes_max"],
            max_batch_size=request["bytes_max"],
            linger_ms=20,
        )
        async with producer:
            sends = [
                await producer.send(
                    request["topic"],
                    partition=request["partition"],
                    key=to_bytes(record["key"]),
                    value=to_bytes(record["value"]),
                    headers=headers_of(record),
                    timestamp_ms=record["timestamp"],
                )
                for record in request["records"]
            ]
            answers = await asyncio.wait_for(asyncio.gather(*sends), TIMEOUT_SECONDS)
        return {"offsets": [None if acks == "0" else answer.offset for answer in answers]}

    async def transact(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        async with AIOKafkaProducer(**self._servers, transactional_id=request["id"]) as producer:
            for each in request["transactions"]:
                await producer.begin_transaction()
                for value in each["values"]:
                    await producer.send_and_wait(place.topic, to_bytes(value), partition=place.partition)
                if request["group"] is not None:
                    await producer.send_offsets_to_transaction({place: each["offset"]}, request["group"])
                if each["commit"]:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        return {}

    async def committed(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        consumer = AIOKafkaConsumer(
            **self._servers, enable_auto_commit=False, isolation_level="read_committed"
        )
        async with consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            return {"records": [await self._next(consumer) for _ in range(request["count"])]}

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**self._servers, enable_auto_commit=False)

    async def _next(self, consumer: AIOKafkaConsumer) -> Answer:
        record = await asyncio.wait_for(consumer.getone(), TIMEOUT_SECONDS)
        return as_record(record.offset, record.timestamp, record.key, record.value, list(record.headers))

    async def consume(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        async with self._consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, request["from"])
            return {"records": [await self._next(consumer) for _ in range(request["count"])]}

    async def seek(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        records = []
        async with self._consumer() as consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            await self._next(consumer)
            for offset in request["offsets"]:
                consumer.seek(place, offset)
                records.append(await self._next(consumer))
        return {"records": records}

    async def times(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        offsets = []
        async with self._consumer() as consumer:
            consumer.assign([place])
            for timestamp in request["timestamps"]:
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                offsets.append(None if found is None else found.offset)
        return {"offsets": offsets}

    async def bounds(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        async with self._consumer() as consumer:
            starts = await consumer.beginning_offsets([place])
            ends = await consumer.end_offsets([place])
        return {"start": starts[place], "end": ends[place]}

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**self._servers)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def create(self, request: Request) -> Answer:
        topic = NewTopic(request["topic"], request["partitions"], 1, topic_configs=request["configs"])
        async with self._admin() as admin:
            check((await admin.create_topics([topic])).topic_errors)
        return {}

    async def delete(self, request: Request) -> Answer:
        async with self._admin() as admin:
            check((await admin.delete_topics([request["topic"]])).topic_error_codes)
        return {}

    async def list(self, request: Request) -> Answer:
        async with self._admin() as admin:
            return {"topics": sorted(await admin.list_topics())}

    async def describe(self, request: Request) -> Answer:
        async with self._admin() as admin:
            (described,) = await admin.describe_topics([request["topic"]])
        check([(described["topic"], described["error_code"])])
        return {"partitions": len(described["partitions"])}

    async def grow(self, request: Request) -> Answer:
        async with self._admin() as admin:
            more = {request["topic"]: NewPartitions(request["partitions"])}
            check((await admin.create_partitions(more)).topic_errors)
        return {}

    async def set_config(self, request: Request) -> Answer:
        wanted = {request["name"]: request["value"]}
        async with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, request["topic"], configs=wanted)
            for answer in await admin.alter_configs([resource]):
                check([(name, code) for code, _, _, name in answer.resources])
        return {}

    async def config(self, request: Request) -> Answer:
        async with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, request["topic"])
            (answer,) = await admin.describe_configs([resource])
        ((code, _, _, name, entries),) = answer.resources
        check([(name, code)])
        return {"value": {entry[0]: entry[1] for entry in entries}[request["name"]]}

    async def brokers(self, request: Request) -> Answer:
        async with self._admin() as admin:
            described = await admin.describe_cluster()
        return {"ids": sorted(broker["node_id"] for broker in described["brokers"])}

    async def trial(self, request: Request) -> Answer:
        async with self._admin() as admin:
            made = await admin.create_topics([NewTopic(request["topic"], 1, 1)], validate_only=True)
            check(made.topic_errors)
        return {}

    async def trim(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        async with self._admin() as admin:
            deleted = await admin.delete_records({place: RecordsToDelete(request["before"])})
        return {"start": deleted[place]}

    async def unset_config(self, request: Request) -> Answer:
        """It replaces all of them, so none is left."""
        async with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, request["topic"], configs={})
            for answer in await admin.alter_configs([resource]):
                check([(name, code) for code, _, _, name in answer.resources])
        return {}

    async def broker_config(self, request: Request) -> Answer:
        async with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.BROKER, str(request["id"]))
            (answer,) = await admin.describe_configs([resource])
        ((code, _, _, name, entries),) = answer.resources
        check([(name, code)])
        return {"value": {entry[0]: entry[1] for entry in entries}[request["name"]]}

    async def set_broker_config(self, request: Request) -> Answer:
        wanted = {request["name"]: request["value"]}
        async with self._admin() as admin:
            resource = ConfigResource(ConfigResourceType.BROKER, str(request["id"]), configs=wanted)
            for answer in await admin.alter_configs([resource]):
                check([(name, code) for code, _, _, name in answer.resources])
        return {}


def check(answers: Any) -> None:
    """aiokafka hands over the error codes of an administrative answer as they are."""
    for name, code, *_ in answers:
        if code:
            raise RefusedError(code, f"{name}: {for_code(code).__name__}")


def telling(operation: Callable[[Request], Awaitable[Answer]]) -> Operation:
    async def awaited(request: Request) -> Answer:
        try:
            return await operation(request)
        except KafkaError as failed:
            raise RefusedError(getattr(failed, "errno", None), repr(failed)) from failed

    return lambda request: asyncio.run(awaited(request))


def main() -> None:
    client = Aiokafka(sys.argv[1])
    offered = (
        client.produce, client.consume, client.seek, client.times, client.bounds, client.create,
        client.delete, client.list, client.describe, client.grow, client.set_config, client.config,
        client.brokers, client.trial, client.trim, client.unset_config, client.broker_config,
        client.set_broker_config, client.transact, client.committed,
    )  # fmt: skip
    serve({operation.__name__: telling(operation) for operation in offered})


if __name__ == "__main__":
    main()
