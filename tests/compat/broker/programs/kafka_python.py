"""kafka-python as a client program: `python -m tests.compat.broker.programs.kafka_python BOOTSTRAP`."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

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


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._servers: dict[str, Any] = {"bootstrap_servers": bootstrap}

    def produce(self, request: Request) -> Answer:
        acks = request["acks"]
        producer = KafkaProducer(
            **self._servers,
            compression_type=None if request["codec"] == "none" else request["codec"],
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=request["idempotent"],
            max_request_size=request["bytes_max"],
            batch_size=request["bytes_max"],
            linger_ms=20,
        )
        sends = [
            producer.send(
                request["topic"],
                partition=request["partition"],
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=headers_of(record),
                timestamp_ms=record["timestamp"],
            )
            for record in request["records"]
        ]
        try:
            offsets = [send.get(timeout=TIMEOUT_SECONDS).offset for send in sends]
        finally:
            producer.close()
        return {"offsets": [None if acks == "0" else offset for offset in offsets]}

    def transact(self, request: Request) -> Answer:
        producer = KafkaProducer(**self._servers, transactional_id=request["id"])
        place = TopicPartition(request["topic"], request["partition"])
        try:
            producer.init_transactions()
            for each in request["transactions"]:
                producer.begin_transaction()
                for value in each["values"]:
                    producer.send(place.topic, to_bytes(value), partition=place.partition)
                if request["group"] is not None:
                    offsets = {place: OffsetAndMetadata(each["offset"], "", -1)}
                    producer.send_offsets_to_transaction(offsets, request["group"])
                if each["commit"]:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        finally:
            producer.close()
        return {}

    def committed(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        consumer = KafkaConsumer(
            **self._servers,
            enable_auto_commit=False,
            isolation_level="read_committed",
            consumer_timeout_ms=int(TIMEOUT_SECONDS * 1000),
        )
        consumer.assign([place])
        consumer.seek(place, 0)
        records = [self._next(consumer) for _ in range(request["count"])]
        consumer.close()
        return {"records": records}

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            **self._servers,
            enable_auto_commit=False,
            consumer_timeout_ms=int(TIMEOUT_SECONDS * 1000),
        )

    def _next(self, consumer: KafkaConsumer) -> Answer:
        record = next(consumer)
        return as_record(record.offset, record.timestamp, record.key, record.value, list(record.headers))

    def consume(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        consumer = self._consumer()
        consumer.assign([place])
        consumer.seek(place, request["from"])
        records = [self._next(consumer) for _ in range(request["count"])]
        consumer.close()
        return {"records": records}

    def seek(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        consumer = self._consumer()
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        self._next(consumer)
        records = []
        for offset in request["offsets"]:
            consumer.seek(place, offset)
            records.append(self._next(consumer))
        consumer.close()
        return {"records": records}

    def times(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        consumer = self._consumer()
        found = [consumer.offsets_for_times({place: timestamp})[place] for timestamp in request["timestamps"]]
        consumer.close()
        return {"offsets": [None if at is None else at.offset for at in found]}

    def bounds(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        consumer = self._consumer()
        bounds = {
            "start": consumer.beginning_offsets([place])[place],
            "end": consumer.end_offsets([place])[place],
        }
        consumer.close()
        return bounds

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(**self._servers)

    def create(self, request: Request) -> Answer:
        admin = self._admin()
        options = {
            "num_partitions": request["partitions"],
            "replication_factor": 1,
            "configs": request["configs"],
        }
        admin.create_topics({request["topic"]: options})
        admin.close()
        return {}

    def delete(self, request: Request) -> Answer:
        admin = self._admin()
        admin.delete_topics([request["topic"]])
        admin.close()
        return {}

    def list(self, request: Request) -> Answer:
        admin = self._admin()
        topics = sorted(admin.list_topics())
        admin.close()
        return {"topics": topics}

    def describe(self, request: Request) -> Answer:
        admin = self._admin()
        (described,) = admin.describe_topics([request["topic"]])
        admin.close()
        if described["error_code"]:
            raise RefusedError(described["error_code"], str(described))
        return {"partitions": len(described["partitions"])}

    def grow(self, request: Request) -> Answer:
        admin = self._admin()
        admin.create_partitions({request["topic"]: request["partitions"]})
        admin.close()
        return {}

    def set_config(self, request: Request) -> Answer:
        admin = self._admin()
        wanted = {request["name"]: request["value"]}
        told = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, request["topic"], wanted)])
        admin.close()
        check(told)
        return {}

    def config(self, request: Request) -> Answer:
        admin = self._admin()
        resource = ConfigResource(ConfigResourceType.TOPIC, request["topic"])
        described = admin.describe_configs([resource], config_filter="all")
        admin.close()
        return {"value": described["topic"][request["topic"]][request["name"]]["value"]}

    def brokers(self, request: Request) -> Answer:
        admin = self._admin()
        described = admin.describe_cluster()
        admin.close()
        return {"ids": sorted(broker["broker_id"] for broker in described["brokers"])}

    @contextmanager
    def _administrator(self) -> Iterator[KafkaAdminClient]:
        admin = self._admin()
        try:
            yield admin
        finally:
            admin.close()

    def trial(self, request: Request) -> Answer:
        with self._administrator() as admin:
            admin.create_topics(
                {request["topic"]: {"num_partitions": 1, "replication_factor": 1}}, validate_only=True
            )
        return {}

    def trim(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with self._administrator() as admin:
            deleted = admin.delete_records({place: request["before"]})
        return {"start": deleted[place]["low_watermark"]}

    def unset_config(self, request: Request) -> Answer:
        with self._administrator() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, request["topic"], [request["name"]])
            check(admin.reset_configs([resource]))
        return {}

    def broker_config(self, request: Request) -> Answer:
        name = str(request["id"])
        with self._administrator() as admin:
            resource = ConfigResource(ConfigResourceType.BROKER, name)
            described = admin.describe_configs([resource], config_filter="all")
        return {"value": described["broker"][name][request["name"]]["value"]}

    def set_broker_config(self, request: Request) -> Answer:
        wanted = {request["name"]: request["value"]}
        with self._administrator() as admin:
            resource = ConfigResource(ConfigResourceType.BROKER, str(request["id"]), wanted)
            check(admin.alter_configs([resource]))
        return {}

    def offsets(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with self._administrator() as admin:
            start, end = (
                admin.list_partition_offsets({place: spec})[place].offset
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
        return {"start": start, "end": end}

    def elect(self, request: Request) -> Answer:
        wanted = {request["topic"]: [request["partition"]]}
        with self._administrator() as admin:
            elected = admin.elect_leaders(0, wanted, raise_errors=False)
        ((told,),) = (topic.partition_result for topic in elected.replica_election_results)
        return {"code": told.error_code}

    def log_dirs(self, request: Request) -> Answer:
        with self._administrator() as admin:
            told = admin.describe_log_dirs([request["topic"]])
        sizes = {
            partition["partition_index"]: partition["partition_size"]
            for broker in told
            for directory in broker["log_dirs"]
            for topic in directory["topics"]
            for partition in topic["partitions"]
        }
        return {"sizes": [sizes[index] for index in sorted(sizes)]}

    def producers(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with self._administrator() as admin:
            return {"count": len(admin.describe_producers([place])[place].active_producers)}

    def quorum(self, request: Request) -> Answer:
        with self._administrator() as admin:
            ((told,),) = (topic["partitions"] for topic in admin.describe_metadata_quorum()["topics"])
        return {
            "leader": told["leader_id"],
            "voters": [each["replica_id"] for each in told["current_voters"]],
        }

    def features(self, request: Request) -> Answer:
        with self._administrator() as admin:
            features = admin.describe_features()
        return {"levels": {name: feature["finalized"][1] for name, feature in features.items()}}

    def raise_feature(self, request: Request) -> Answer:
        with self._administrator() as admin:
            admin.update_features({request["name"]: request["level"]})
        return {}

    def resources(self, request: Request) -> Answer:
        with self._administrator() as admin:
            return {"topics": sorted(admin.list_config_resources(["TOPIC"])["topic"])}

    def topic_partitions(self, request: Request) -> Answer:
        with self._administrator() as admin:
            (told,) = admin.describe_topic_partitions([request["topic"]])["topics"]
        return {"partitions": len(told["partitions"])}


def check(outcomes: Any) -> None:
    """kafka-python tells what became of settings in words, the error's number in front."""
    for told in (each for of_kind in outcomes.values() for each in of_kind.values()):
        number = re.match(r"\[Error (\d+)\]", str(told))
        if number is not None:
            raise RefusedError(int(number[1]), str(told))


def telling(operation: Operation) -> Operation:
    def told(request: Request) -> Answer:
        try:
            return operation(request)
        except KafkaError as failed:
            raise RefusedError(getattr(failed, "errno", None), repr(failed)) from failed

    return told


def main() -> None:
    client = KafkaPython(sys.argv[1])
    offered = (
        client.produce, client.consume, client.seek, client.times, client.bounds, client.create,
        client.delete, client.list, client.describe, client.grow, client.set_config, client.config,
        client.brokers, client.trial, client.trim, client.unset_config, client.broker_config,
        client.set_broker_config, client.offsets, client.elect, client.log_dirs, client.producers,
        client.quorum, client.features, client.raise_feature, client.resources, client.topic_partitions,
        client.transact, client.committed,
    )  # fmt: skip
    serve({operation.__name__: telling(operation) for operation in offered})


if __name__ == "__main__":
    main()
