"""kafka-python, which warns when it is imported, as a second opinion."""

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka.errors
    from kafka.partitioner.default import murmur2


def their_murmur2(key: bytes) -> int:
    return int(murmur2(key))


def their_errors() -> list[Any]:
    """Their classes for what a broker answers."""
    base: type = kafka.errors.BrokerResponseError
    return [each for each in vars(kafka.errors).values() if isinstance(each, type) and issubclass(each, base)]
