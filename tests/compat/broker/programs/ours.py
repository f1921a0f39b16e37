"""This project's own client as a client program: `python -m tests.compat.broker.programs.ours BOOTSTRAP`."""

import sys
from typing import Any

from distributedlog import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from distributedlog.client.admin.configs import ConfigEdit, ConfigKind, ConfigOf, edits, of_broker, of_topic
from distributedlog.client.errors import code_of
from distributedlog.client.offset_specs import EARLIEST, LATEST
from distributedlog.model.errors import DlogError
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


class Distributedlog:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    # --- records -------------------------------------------------------------------------------

    def produce(self, request: Request) -> Answer:
        settings: dict[str, Any] = {
            "compression": request["codec"],
            "acks": request["acks"] if request["acks"] == "all" else int(request["acks"]),
            "enable_idempotence": request["idempotent"],
            "max_request_size": request["bytes_max"],
            "batch_size": request["bytes_max"],
            "linger_ms": 20,
        }
        with Producer(self._bootstrap, **settings) as producer:
            sends = [
                producer.send(
                    request["topic"],
                    to_bytes(record["value"]),
                    to_bytes(record["key"]),
                    partition=request["partition"],
                    headers=headers_of(record),
                    timestamp_ms=record["timestamp"],
                )
                for record in request["records"]
            ]
            offsets = [send.result(TIMEOUT_SECONDS).offset for send in sends]
        return {"offsets": [None if offset < 0 else offset for offset in offsets]}

    def transact(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Producer(self._bootstrap, transactional_id=request["id"]) as producer:
            for each in request["transactions"]:
                producer.begin_transaction()
                for value in each["values"]:
                    producer.send(place.topic, to_bytes(value), partition=place.partition)
                if request["group"] is not None:
                    producer.send_offsets({place: each["offset"]}, request["group"])
                if each["commit"]:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        return {}

    def _read(self, request: Request, start: int, count: int, **settings: Any) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Consumer(self._bootstrap, **settings) as consumer:
            consumer.assign([place])
            consumer.seek(place, start)
            return {"records": [_told(next(consumer)) for _ in range(count)]}

    def committed(self, request: Request) -> Answer:
        return self._read(request, 0, request["count"], isolation_level="read_committed")

    def consume(self, request: Request) -> Answer:
        return self._read(request, request["from"], request["count"])

    def seek(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        records = []
        with Consumer(self._bootstrap) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            next(consumer)
            for offset in request["offsets"]:
                consumer.seek(place, offset)
                records.append(_told(next(consumer)))
        return {"records": records}

    def times(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Admin(self._bootstrap) as admin:
            found = [admin.list_offsets({place: each})[place].offset for each in request["timestamps"]]
        return {"offsets": [None if offset < 0 else offset for offset in found]}

    def bounds(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Consumer(self._bootstrap) as consumer:
            return {
                "start": consumer.beginning_offsets([place])[place],
                "end": consumer.end_offsets([place])[place],
            }

    # --- administration ------------------------------------------------------------------------

    def create(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            admin.create_topic(NewTopic(request["topic"], request["partitions"], configs=request["configs"]))
        return {}

    def trial(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            _check(admin.create_topics([NewTopic(request["topic"], 1)], validate_only=True))
        return {}

    def delete(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            _check(admin.delete_topics([request["topic"]]))
        return {}

    def list(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            return {"topics": sorted(each.name for each in admin.list_topics())}

    def describe(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            (topic,) = admin.describe_topics([request["topic"]])
        return {"partitions": len(topic.partitions)}

    def grow(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            _check(admin.create_partitions({request["topic"]: request["partitions"]}))
        return {}

    def _alter(self, whose: ConfigOf, changes: tuple[ConfigEdit, ...]) -> Answer:
        with Admin(self._bootstrap) as admin:
            _check(admin.alter_configs({whose: changes}))
        return {}

    def _config(self, whose: ConfigOf, name: str) -> Answer:
        with Admin(self._bootstrap) as admin:
            (entry,) = admin.describe_configs(whose, [name]) or ()
        return {"value": entry.value}

    def set_config(self, request: Request) -> Answer:
        return self._alter(of_topic(request["topic"]), edits({request["name"]: request["value"]}))

    def unset_config(self, request: Request) -> Answer:
        return self._alter(of_topic(request["topic"]), edits(to_unset=[request["name"]]))

    def config(self, request: Request) -> Answer:
        return self._config(of_topic(request["topic"]), request["name"])

    def set_broker_config(self, request: Request) -> Answer:
        return self._alter(of_broker(request["id"]), edits({request["name"]: request["value"]}))

    def broker_config(self, request: Request) -> Answer:
        return self._config(of_broker(request["id"]), request["name"])

    def brokers(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            return {"ids": sorted(admin.describe_cluster().brokers)}

    def trim(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Admin(self._bootstrap) as admin:
            starts = admin.delete_records({place: request["before"]})
        _check(starts)
        return {"start": starts[place]}

    def offsets(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Admin(self._bootstrap) as admin:
            start, end = (admin.list_offsets({place: when})[place].offset for when in (EARLIEST, LATEST))
        return {"start": start, "end": end}

    def elect(self, request: Request) -> Answer:
        place = TopicPartition(request["topic"], request["partition"])
        with Admin(self._bootstrap) as admin:
            error = admin.elect_leaders([place])[place]
        return {"code": 0 if error is None else code_of(error)}

    def log_dirs(self, request: Request) -> Answer:
        sizes: dict[int, int] = {}
        with Admin(self._bootstrap) as admin:
            told: dict[int, Any] = dict(admin.describe_log_dirs())
        _check(told)
        for directory in (
            each for found in told.values() if not isinstance(found, DlogError) for each in found
        ):
            for place, replica in directory.replicas.items():
                if place.topic == request["topic"]:
                    sizes[place.partition] = replica.size_bytes
        return {"sizes": [sizes[index] for index in sorted(sizes)]}

    def producers(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            found = admin.describe_producers(TopicPartition(request["topic"], request["partition"]))
        return {"count": len(found)}

    def quorum(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            told = admin.describe_quorum()
        return {"leader": told.leader_id, "voters": [each.node_id for each in told.voters]}

    def features(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            return {"levels": dict(admin.describe_features().finalized)}

    def raise_feature(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            admin.update_features({request["name"]: request["level"]})
        return {}

    def resources(self, request: Request) -> Answer:
        with Admin(self._bootstrap) as admin:
            found = admin.list_config_resources([ConfigKind.TOPIC])
        return {"topics": sorted(each.name for each in found)}


def _told(record: ConsumerRecord) -> Answer:
    headers = [(each.key, each.value) for each in record.headers]
    return as_record(record.offset, record.timestamp_ms, record.key, record.value, headers)


def _check(outcomes: Any) -> None:
    for each in outcomes.values():
        if isinstance(each, DlogError):
            raise each


def telling(operation: Operation) -> Operation:
    def told(request: Request) -> Answer:
        try:
            return operation(request)
        except DlogError as failed:
            raise RefusedError(code_of(failed), str(failed)) from failed

    return told


def main() -> None:
    client = Distributedlog(sys.argv[1])
    offered = (
        client.produce, client.consume, client.seek, client.times, client.bounds, client.create,
        client.delete, client.list, client.describe, client.grow, client.set_config, client.config,
        client.brokers, client.trial, client.trim, client.unset_config, client.broker_config,
        client.set_broker_config, client.offsets, client.elect, client.log_dirs, client.producers,
        client.quorum, client.features, client.raise_feature, client.resources, client.transact,
        client.committed,
    )  # fmt: skip
    serve({operation.__name__: telling(operation) for operation in offered})


if __name__ == "__main__":
    main()
