"""A task of Spark, as far as the sink asks it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FakeTask:
    properties: Mapping[str, str] = field(default_factory=dict)
    partition: int = 3
    number: int = 1
    attempt: int = 42

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties.get(key)

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.number

    def taskAttemptId(self) -> int:
        return self.attempt
