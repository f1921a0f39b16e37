"""Plans of moves in Kafka's JSON, as `kafka-reassign-partitions` reads and writes them.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3]}]}

"log_dirs" is let by: a broker has one log directory.
"""

import json
from typing import Any, Final

from distributedlog.model.errors import InvalidRequestError
from distributedlog.model.ids import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]

VERSION: Final = 1
ID_MAX: Final = 2**31 - 1


def parse_plan(text: str) -> Plan:
    """Returns the replicas that each partition is to have; raises InvalidRequestError that says where the
    text is wrong."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the plan is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise InvalidRequestError(f'a plan is an object with "version": {VERSION}')
    moves = document.get("partitions")
    if not isinstance(moves, list) or not moves:
        raise InvalidRequestError('the plan has no "partitions"')
    plan: Plan = {}
    for at, move in enumerate(moves):
        name, replicas = _parse_move(at, move)
        if name in plan:
            raise InvalidRequestError(f"{name} is in the plan more than once")
        plan[name] = replicas
    return plan


def _parse_move(at: int, move: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    where = f'"partitions"[{at}]'
    if not isinstance(move, dict):
        raise InvalidRequestError(f"{where} is no object")
    topic, partition, replicas = move.get("topic"), move.get("partition"), move.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise InvalidRequestError(f'{where} has no "topic"')
    if not isinstance(partition, int) or not _is_id(partition):
        raise InvalidRequestError(f'{where} has no "partition" that is a number')
    if not isinstance(replicas, list) or not replicas or not all(_is_id(each) for each in replicas):
        raise InvalidRequestError(f'{where} has no "replicas" that are ids of brokers')
    return TopicPartition(topic, partition), tuple(replicas)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= ID_MAX


def spell_plan(plan: Plan) -> str:
    """Returns the plan as JSON, for another time or for Kafka's tool."""
    moves = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": VERSION, "partitions": moves})
