"""What was to be read and is not there any more: an error, or a line in the log, as `failOnDataLoss` says.

It stands by itself because who reads files needs it too, and needs nothing of a client.
"""

import logging
from typing import Final

from distributedlog.model.errors import DlogError

ADVICE: Final = (
    'What is not there cannot be read; to go on without it, set the option failOnDataLoss to "false".'
)
_logger = logging.getLogger("distributedlog.spark")


class Losses:
    """Raises what is lost, or says it in the log and goes on."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def report(self, error: DlogError) -> None:
        if self._fails:
            raise type(error)(f"{error}. {ADVICE}")
        _logger.warning("%s; it is passed over, as failOnDataLoss is false", error)
