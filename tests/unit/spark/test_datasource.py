"""What Spark is told of the format before anything is read."""

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.spark.datasource import DlogDataSource

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}


@pytest.mark.parametrize(
    "told", [{f"option.{name}": it for name, it in OPTIONS.items()}, {"provider": "dlog", "owner": "me"}]
)
def test_a_table_that_could_not_be_read_is_not_created(told: dict[str, str]) -> None:
    """Spark hands over options as such and once more, and what it knows of the table."""
    with pytest.raises(ConfigError, match="write CREATE TEMPORARY VIEW"):
        DlogDataSource({**OPTIONS, **told}).schema()
    assert DlogDataSource(OPTIONS).schema().names[:2] == ["key", "value"]
