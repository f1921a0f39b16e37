"""Administration meanwhile: topics are created, get more partitions, and are deleted.

They are topics beside the one that is checked.  What cannot be done just now is left.
"""

import contextlib
from collections.abc import Callable, Mapping

from distributedlog.model.errors import DlogError
from tests.chaos.nemeses.stage import Nemesis, Stage

TOPICS_MAX = 4
PARTITIONS_MAX = 6


class Administer:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names: list[str] = []

    def begin(self) -> str:
        chance, cluster = self._stage.chance, self._stage.cluster
        for _ in range(chance.randint(1, TOPICS_MAX)):
            name, partitions = f"beside-{chance.randrange(10**9)}", chance.randint(1, 3)
            with contextlib.suppress(DlogError, OSError):
                cluster.create_topic(name, partitions, 3, {}, timeout_seconds=5)
                self._names.append(name)
                if chance.random() < 0.5:
                    cluster.add_partitions(name, partitions + chance.randint(1, PARTITIONS_MAX - 3))
        return f"{len(self._names)} topics made"

    def heal(self) -> None:
        with contextlib.suppress(DlogError, OSError):
            self._stage.cluster.delete_topics(self._names)


MAKERS: Mapping[str, Callable[[Stage], Nemesis]] = {"administer": Administer}
