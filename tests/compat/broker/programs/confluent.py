"""confluent-kafka as a client program: `python -m tests.compat.broker.programs.confluent BOOTSTRAP`."""

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka._model import ElectionType
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

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

NO_OFFSET = -1
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def refused(error: KafkaError) -> RefusedError:
    return RefusedError(error.code(), error.str())


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._servers: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._servers)

    def produce(self, request: Request) -> Answer:
        producer = Producer(
            {
                **self._servers,
                "compression.type": request["codec"],
                "acks": request["acks"],
                "enable.idempotence": request["idempotent"],
                "message.max.bytes": request["bytes_max"],
                "linger.ms": 20,
            }
        )
        offsets: list[int | None] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset() if request["acks"] != "0" else None)

        for record in request["records"]:
            producer.produce(
                request["topic"],
                partition=request["partition"],
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=list[tuple[str, str | bytes | None]](headers_of(record)),
                timestamp=record["timestamp"] or 0,
                on_delivery=delivered,
            )
        left = producer.flush(TIMEOUT_SECONDS)
        if errors:
            raise refused(errors[0])
        if left:
            raise RefusedError(None, f"{left} records were not delivered")
        return {"offsets": offsets}

    def transact(self, request: Request) -> Answer:
        producer = Producer({**self._servers, "transactional.id": request["id"]})
        producer.init_transactions(TIMEOUT_SECONDS)
        for each in request["transactions"]:
            producer.begin_transaction()
            for value in each["values"]:
                producer.produce(request["topic"], to_bytes(value), partition=request["partition"])
            if request["group"] is not None:
                consumer = Consumer({**self._servers, "group.id": request["group"]})
                place = TopicPartition(request["topic"], request["partition"], each["offset"])
                group = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction([place], group, TIMEOUT_SECONDS)
                consumer.close()
            if each["commit"]:
                producer.commit_transaction(TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(TIMEOUT_SECONDS)
        return {}

    def committed(self, request: Request) -> Answer:
        settings = {"group.id": "none", "enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = Consumer({**self._servers, **settings})
        consumer.assign([TopicPartition(request["topic"], request["partition"], 0)])
        records = [self._next(consumer) for _ in range(request["count"])]
        consumer.close()
        return {"records": records}

    def _consumer(self) -> Consumer:
        return Consumer({**self._servers, "group.id": "none", "enable.auto.commit": False})

    def _next(self, consumer: Consumer) -> Answer:
        message = consumer.poll(TIMEOUT_SECONDS)
        if message is None:
            raise RefusedError(None, "nothing came")
        error = message.error()
        if error is not None:
            raise refused(error)
        offset, timestamp = message.offset(), message.timestamp()[1]
        assert offset is not None
        headers: Any = message.headers() or []
        return as_record(offset, timestamp, message.key(), message.value(), headers)

    def consume(self, request: Request) -> Answer:
        consumer = self._consumer()
        consumer.assign([TopicPartition(request["topic"], request["partition"], request["from"])])
        records = [self._next(consumer) for _ in range(request["count"])]
        consumer.close()
        return {"records": records}

    def seek(self, request: Request) -> Answer:
        consumer = self._consumer()
        consumer.assign([TopicPartition(request["topic"], request["partition"], 0)])
        self._next(consumer)
        records = []
        for offset in request["offsets"]:
            consumer.seek(TopicPartition(request["topic"], request["partition"], offset))
            records.append(self._next(consumer))
        consumer.close()
        return {"records": records}

    def times(self, request: Request) -> Answer:
        consumer = self._consumer()
        offsets = []
        for timestamp in request["timestamps"]:
            asked = [TopicPartition(request["topic"], request["partition"], timestamp)]
            (found,) = consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
            if found.error is not None:
                raise refused(found.error)
            offsets.append(None if found.offset == NO_OFFSET else found.offset)
        consumer.close()
        return {"offsets": offsets}

    def bounds(self, request: Request) -> Answer:
        consumer = self._consumer()
        place = TopicPartition(request["topic"], request["partition"])
        found = consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)
        assert found is not None
        consumer.close()
        return {"start": found[0], "end": found[1]}

    def create(self, request: Request) -> Answer:
        topic = NewTopic(
            request["topic"],
            num_partitions=request["partitions"],
            replication_factor=1,
            config=request["configs"],
        )
        self._admin.create_topics([topic])[request["topic"]].result(TIMEOUT_SECONDS)
        return {}

    def delete(self, request: Request) -> Answer:
        self._admin.delete_topics([request["topic"]])[request["topic"]].result(TIMEOUT_SECONDS)
        return {}

    def list(self, request: Request) -> Answer:
        return {"topics": sorted(self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics)}

    def describe(self, request: Request) -> Answer:
        (described,) = self._admin.list_topics(request["topic"], timeout=TIMEOUT_SECONDS).topics.values()
        if described.error is not None:
            raise refused(described.error)
        return {"partitions": len(described.partitions)}

    def grow(self, request: Request) -> Answer:
        more = NewPartitions(request["topic"], request["partitions"])
        self._admin.create_partitions([more])[request["topic"]].result(TIMEOUT_SECONDS)
        return {}

    def set_config(self, request: Request) -> Answer:
        entry = ConfigEntry(request["name"], request["value"], incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, request["topic"], incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {}

    def config(self, request: Request) -> Answer:
        resource = ConfigResource(ResourceType.TOPIC, request["topic"])
        entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {"value": entries[request["name"]].value}

    def brokers(self, request: Request) -> Answer:
        described = self._admin.describe_cluster().result(TIMEOUT_SECONDS)
        return {"ids": sorted(node.id for node in described.nodes)}

    def trial(self, request: Request) -> Answer:
        topic = NewTopic(request["topic"], num_partitions=1, replication_factor=1)
        made = self._admin.create_topics([topic], validate_only=True)
        made[request["topic"]].result(TIMEOUT_SECONDS)
        return {}

    def trim(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"], request["before"])
        deleted = self._admin.delete_records([place])[place].result(TIMEOUT_SECONDS)
        return {"start": deleted.low_watermark}

    def unset_config(self, request: Request) -> Answer:
        entry = ConfigEntry(request["name"], None, incremental_operation=AlterConfigOpType.DELETE)
        resource = ConfigResource(ResourceType.TOPIC, request["topic"], incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {}

    def broker_config(self, request: Request) -> Answer:
        resource = ConfigResource(ResourceType.BROKER, str(request["id"]))
        entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {"value": entries[request["name"]].value}

    def set_broker_config(self, request: Request) -> Answer:
        entry = ConfigEntry(request["name"], request["value"], incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(request["id"]), incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {}

    def offsets(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        found = [
            self._admin.list_offsets({place: spec})[place].result(TIMEOUT_SECONDS).offset
            for spec in (EARLIEST, LATEST)
        ]
        return {"start": found[0], "end": found[1]}

    def elect(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        elected = self._admin.elect_leaders(ElectionType.PREFERRED, [place]).result(TIMEOUT_SECONDS)
        error = elected[place]
        return {"code": 0 if error is None else error.code()}


def telling(operation: Operation) -> Operation:
    """Raises with the error code that confluent-kafka hides in its exception."""

    def told(request: Request) -> Answer:
        try:
            return operation(request)
        except KafkaException as failed:
            raise refused(failed.args[0]) from failed

    return told


def main() -> None:
    client = Confluent(sys.argv[1])
    offered = (
        client.produce, client.consume, client.seek, client.times, client.bounds, client.create,
        client.delete, client.list, client.describe, client.grow, client.set_config, client.config,
        client.brokers, client.trial, client.trim, client.unset_config, client.broker_config,
        client.set_broker_config, client.offsets, client.elect, client.transact, client.committed,
    )  # fmt: skip
    serve({operation.__name__: telling(operation) for operation in offered})


if __name__ == "__main__":
    main()
