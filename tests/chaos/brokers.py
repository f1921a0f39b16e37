"""What load and judging ask of brokers, whoever has started them."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Brokers(Protocol):
    @property
    def bootstrap(self) -> str:
        """Where clients begin that are started now."""
        ...

    @property
    def ended(self) -> Sequence[tuple[int, int]]:
        """Brokers that ended by themselves, and their exit codes."""
        ...

    def create_topic(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None: ...
