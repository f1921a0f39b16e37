"""Three kills and a zombie among those that count a topic into another exactly once; by hand it is fifty."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.once_kills import Kill, play, staged

KILLS = [
    Kill("driver", True, 0),
    Kill("coordinator", False, 0.2),
    Kill("python", False, 0.1),
    Kill("zombie", False, 0.1),
]


@pytest.mark.timeout(600)
def test_the_output_is_what_the_input_says_whoever_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with staged(tmp_path, is_local=True) as stage:
        record_property("figures", play(stage, KILLS, seed=3))
        assert stage.driver.starts >= 3
        assert stage.driver.zombies == 1
