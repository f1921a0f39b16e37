"""Errors of ours as Spark shows them: the message, and not twenty lines of our own code before it.

Spark runs a source and a sink in processes of their own and turns what they raise into text, traceback and
causes included, which becomes the message of its exception.  Of a misspelt option its user needs one line,
and that is the last of many.  So what Spark calls is `told_plainly`: a `DlogError`, which says by itself what
is wrong, is raised anew without the way it came.  Any other exception is a mistake of ours and keeps all.
The way is logged at DEBUG (logger `distributedlog.spark`).
"""

import functools
import logging
from collections.abc import Callable
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
            log.debug("the way of what is told to Spark", exc_info=True)
            raise error.with_traceback(None) from None

    return call
