"""Errors of ours as Spark shows them: the message, and not twenty lines of our own code before it.

Spark runs a source and a sink in processes of their own and turns what they raise into text, traceback and
causes included, which becomes the message of its exception.  Of a misspelt option its user needs one line,
and that is the last of many.  So what Spark calls is `told_plainly`: a `DlogError`, which says by itself what
is wrong, is raised anew without the way it came.  Any other exception is a mistake of ours and keeps all.
What hands out rows one by one fails while they are taken: that is `rows_told_plainly`.
The way is logged at DEBUG (logger `distributedlog.spark`).
"""

import functools
import logging
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from distributedlog.model.errors import DlogError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

log = logging.getLogger("distributedlog.spark")


def told_plainly(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except DlogError as error:
            raise _plain(error) from None

    return call


def rows_told_plainly(
    function: Callable[Arguments, Iterator[Result]],
) -> Callable[Arguments, Iterator[Result]]:
    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        try:
            yield from function(*args, **kwargs)
        except DlogError as error:
            raise _plain(error) from None

    return call


def _plain(error: DlogError) -> DlogError:
    log.debug("the way of what is told to Spark", exc_info=True)
    return error.with_traceback(None)
