"""Transactions as programs write them: a block that is committed at its end, or aborted.

| the block                        | then                                                                    |
|----------------------------------|-------------------------------------------------------------------------|
| ends                             | everything is delivered and committed                                   |
| raises                           | it is aborted, and what it raised goes on                               |
| ends, but something had failed   | it is aborted, and `TransactionAbortableError` says why                 |
| ends, and is cancelled before    | it is aborted, and the cancellation goes on                             |
| the commit was asked for         |                                                                         |
| ends, and nobody knows the rest  | the error goes on: `commit_transaction` may be called again, or `close` |

An abort that fails as well is told in a note of the error that goes on.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol

from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

if TYPE_CHECKING:
    from distributedlog.client.admin.group_offsets import OffsetAndMetadata
    from distributedlog.client.transactions.manager import GroupMetadata

Positions = Mapping[TopicPartition, "int | OffsetAndMetadata"]


class AioTransactional(Protocol):
    async def begin_transaction(self) -> None: ...
    async def commit_transaction(self) -> None: ...
    async def abort_transaction(self) -> None: ...


class BlockingTransactional(Protocol):
    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def abort_transaction(self) -> None: ...


@asynccontextmanager
async def aio_transaction(producer: AioTransactional) -> AsyncIterator[None]:
    await producer.begin_transaction()
    try:
        yield
        await producer.commit_transaction()
    except BaseException as error:
        try:
            await producer.abort_transaction()  # refuses once the commit was asked for
        except DlogError as second:
            _note(error, second)
        raise


@contextmanager
def blocking_transaction(producer: BlockingTransactional) -> Iterator[None]:
    producer.begin_transaction()
    try:
        yield
        producer.commit_transaction()
    except BaseException as error:
        try:
            producer.abort_transaction()  # refuses once the commit was asked for
        except DlogError as second:
            _note(error, second)
        raise


def _note(error: BaseException, second: DlogError) -> None:
    error.add_note(f"and the transaction could not be aborted: {second}")


def offsets_of(positions: Positions) -> "dict[TopicPartition, OffsetAndMetadata]":
    from distributedlog.client.admin.group_offsets import OffsetAndMetadata

    return {each: OffsetAndMetadata(at) if isinstance(at, int) else at for each, at in positions.items()}


def group_of(group: "GroupMetadata | str") -> "GroupMetadata":
    """A name alone is a group without members: positions that no consumer of it commits."""
    from distributedlog.client.transactions.manager import GroupMetadata

    return GroupMetadata(group) if isinstance(group, str) else group
