"""The loop: choose a target, choose one of its inputs, change it, run it; keep what came to something new.

There is no coverage to steer by, but what a target says is nearly as good: each refusal has its own words, so
an input that is refused in words that were not heard before got somewhere new, and is changed further.

The memory of the process is looked at all along: an input may not make it grow.
"""

import base64
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import Target, outcome

CORPUS: Final = Path(__file__).parent / "corpus" / "inputs.jsonl"
INPUTS_PER_TARGET_MAX: Final = 60
KEPT_BYTES_MAX: Final = 100
"""Longer inputs are changed further while it runs, but not written down."""
GROWTH_MB_MAX: Final = 96
LOOK_EVERY: Final = 500
RUN_SECONDS_MAX: Final = 5.0


class CrashError(AssertionError):
    """A target did what it did not declare; names the input."""


@dataclass
class Pool:
    """The inputs of one target, and what they came to."""

    target: Target
    inputs: list[bytes] = field(default_factory=list)
    outcomes: dict[str, bytes] = field(default_factory=dict)

    def add(self, what: str, data: bytes) -> None:
        self.outcomes[what] = data
        if len(self.inputs) < INPUTS_PER_TARGET_MAX:
            self.inputs.append(data)


class Fuzzer:
    def __init__(self, targets: Iterable[Target], seed: int) -> None:
        self._random = Random(seed)
        self.pools = [Pool(target) for target in targets]
        self.executions = 0
        for pool in self.pools:
            for data in pool.target.seeds:
                self.execute(pool, data)

    def load(self, path: Path = CORPUS) -> int:
        """Runs every input that was kept; how many there are."""
        by_name = {pool.target.name: pool for pool in self.pools}
        count = 0
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            pool = by_name.get(entry["target"])
            if pool is not None:
                self.execute(pool, base64.b64decode(entry["data"]))
                count += 1
        return count

    def save(self, path: Path = CORPUS) -> int:
        """One input, the shortest, for all versions of a message that say the same."""
        kept: dict[tuple[str, str], tuple[str, bytes]] = {}
        for pool in self.pools:
            name = pool.target.name
            for what, data in pool.outcomes.items():
                key = name.partition(":")[0], what
                if len(data) <= KEPT_BYTES_MAX and (key not in kept or len(data) < len(kept[key][1])):
                    kept[key] = name, data
        lines = sorted(
            json.dumps({"target": name, "data": base64.b64encode(data).decode()})
            for name, data in kept.values()
        )
        path.write_text("".join(line + "\n" for line in lines))
        return len(lines)

    def execute(self, pool: Pool, data: bytes) -> None:
        self.executions += 1
        began = time.perf_counter()
        try:
            what = outcome(pool.target, bytearray(data))
        except Exception as error:
            raise CrashError(f"{pool.target.name} with {data.hex()}: {error!r}") from error
        if time.perf_counter() - began > RUN_SECONDS_MAX:
            raise CrashError(f"{pool.target.name} took seconds with {data.hex()}")
        if what not in pool.outcomes:
            pool.add(what, data)

    def run(self, executions: int, tell: Callable[[int], None] = lambda _: None) -> None:
        random, pools = self._random, self.pools
        before_mb = resident_mb()
        for number in range(executions):
            pool = random.choice(pools)
            data = random.choice(pool.inputs)
            self.execute(pool, bytes(mutate(data, pool.inputs, random)))
            if number % LOOK_EVERY == 0:
                grown_mb = resident_mb() - before_mb
                if grown_mb > GROWTH_MB_MAX:
                    raise CrashError(f"after {number} executions the process has grown by {grown_mb:.0f} MB")
                tell(number)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
