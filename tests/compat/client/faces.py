"""Both faces of the client behind one: the tests are written once, for the blocking one.

`Asyncio` makes clients of `distributedlog.aio` on a loop of the test's own, and each call runs that loop
until it is done.  Between two calls nothing runs, not even heartbeats: tests are shorter than a session.
"""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import distributedlog
from distributedlog import aio
from distributedlog.client.faces.bulk import RowsDelivery


class Face(Protocol):
    """Makes clients of one cluster."""

    def producer(self, **settings: Any) -> Any: ...
    def consumer(self, **settings: Any) -> Any: ...
    def admin(self, **settings: Any) -> Any: ...


class Blocking:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, **settings: Any) -> Any:
        return distributedlog.Producer(self._bootstrap, **settings)

    def consumer(self, **settings: Any) -> Any:
        return distributedlog.Consumer(self._bootstrap, **settings)

    def admin(self, **settings: Any) -> Any:
        return distributedlog.Admin(self._bootstrap, **settings)


class Asyncio:
    def __init__(self, bootstrap: str, runner: asyncio.Runner) -> None:
        self._bootstrap = bootstrap
        self._runner = runner

    def producer(self, **settings: Any) -> Any:
        return self._make(aio.Producer, settings)

    def consumer(self, **settings: Any) -> Any:
        return self._make(aio.Consumer, settings)

    def admin(self, **settings: Any) -> Any:
        return self._make(aio.Admin, settings)

    def _make(self, kind: Any, settings: dict[str, Any]) -> "_Run":
        async def make() -> Any:
            return kind(self._bootstrap, **settings)

        return _Run(self._runner.run(make()), self._runner)


class _Run:
    """A client whose calls are run to their ends."""

    def __init__(self, client: Any, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            async def run() -> Any:
                outcome = found(*arguments, **named)
                return await outcome if inspect.iscoroutine(outcome) else outcome

            outcome = self._runner.run(run())
            if isinstance(outcome, aio.Delivery | RowsDelivery):
                return _Delivery(outcome, self._runner)
            return outcome

        return call

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self._client.transaction()
        self._runner.run(block.__aenter__())
        try:
            yield
        except BaseException as error:
            if not self._runner.run(block.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._runner.run(block.__aexit__(None, None, None))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            return await self._client.__anext__()

        return self._runner.run(following())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._client.__aexit__(kind, error, trace))


class _Delivery:
    def __init__(self, delivery: Any, runner: asyncio.Runner) -> None:
        self._delivery = delivery
        self._runner = runner

    def result(self, timeout: float | None = None) -> Any:
        async def wait() -> Any:
            async with asyncio.timeout(timeout):
                return await self._delivery

        return self._runner.run(wait())
