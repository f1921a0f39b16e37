"""The admin client for programs without an event loop.

It has a loop of its own, which runs only during a call: so it must not be used from within another loop, nor
by two threads at once.  What happens to its connections between calls is noticed by the next one.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from distributedlog.client.admin import Admin, ConfigEntry, CreatedTopic, NewTopic, OffsetRange
from distributedlog.client.options import ClientOptions
from distributedlog.client.places import Isolation, OffsetAt
from distributedlog.client.view import ClusterView, TopicView
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

T = TypeVar("T")


class BlockingAdmin:
    """`Admin`, each call of which returns when it is done.  To be used with `with`."""

    def __init__(self, bootstrap: str, options: ClientOptions | None = None) -> None:
        self._runner = asyncio.Runner()
        self._admin = Admin.connect(bootstrap, options)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def __enter__(self) -> "BlockingAdmin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._run(self._admin.close())
        self._runner.close()

    def describe_cluster(self) -> ClusterView:
        return self._run(self._admin.describe_cluster())

    def list_topics(self, *, with_internal: bool = False) -> tuple[TopicView, ...]:
        return self._run(self._admin.list_topics(with_internal=with_internal))

    def describe_topics(self, names: Collection[str]) -> tuple[TopicView, ...]:
        return self._run(self._admin.describe_topics(names))

    def create_topic(self, topic: NewTopic) -> CreatedTopic:
        return self._run(self._admin.create_topic(topic))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | DlogError]:
        return self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Sequence[str]) -> dict[str, DlogError | None]:
        return self._run(self._admin.delete_topics(names))

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAt]:
        return self._run(self._admin.list_offsets(wanted, isolation))

    def offset_ranges(self, topics: Sequence[TopicView]) -> dict[TopicPartition, OffsetRange]:
        return self._run(self._admin.offset_ranges(topics))

    def topic_configs(self, name: str) -> tuple[ConfigEntry, ...] | None:
        return self._run(self._admin.topic_configs(name))

    def log_sizes(self, topics: Sequence[TopicView]) -> dict[TopicPartition, int] | None:
        return self._run(self._admin.log_sizes(topics))
