"""The kinds of clients by name; each is imported only where it is used."""

from collections.abc import Mapping
from importlib import import_module

from tests.reliability.programs.transactions.client import Kind

MODULES: Mapping[str, str] = {
    "confluent": "confluent",
    "own": "own",
    "aiokafka": "asyncio_client",
    "kafka-python": "kafka_python",
    "java": "java_client",
}


def kind_of(name: str) -> Kind:
    module = import_module(f"tests.reliability.programs.transactions.{MODULES[name.rstrip('+')]}")
    kind: Kind = module.KIND
    return kind
