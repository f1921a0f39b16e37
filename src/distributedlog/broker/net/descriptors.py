"""Descriptors: how many this process may have, and who gets how many of them.

Every connection takes one, and every open file.  The limit is raised as far as the system allows; what is
left then is shared out, so that a crowd of clients cannot keep a log from being synced: a quarter for files
of logs, half for clients' connections, the rest for gRPC, the metadata log, pipes and libraries.
"""

import logging
import resource
from typing import Final, NamedTuple

from distributedlog.storage.files import OPEN_FILES_MAX

WANTED: Final = 65_536
FILES_MIN: Final = 8
CONNECTIONS_MIN: Final = 4

_log = logging.getLogger(__name__)


class DescriptorBudget(NamedTuple):
    open_files_max: int
    connections_max: int


def raise_limit() -> int:
    """Raises the limit as far as one may; returns how many descriptors there are then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return WANTED if soft == resource.RLIM_INFINITY else soft


def share(descriptors: int, connections_wanted: int) -> DescriptorBudget:
    """Decides who gets how many; logs it if that is less than was wanted."""
    files = max(FILES_MIN, min(OPEN_FILES_MAX, descriptors // 4))
    connections = max(CONNECTIONS_MIN, min(connections_wanted, descriptors // 2))
    if connections < connections_wanted:
        _log.warning(
            "this process may have %d descriptors: at most %d connections are served, not %d (see ulimit -n)",
            descriptors,
            connections,
            connections_wanted,
        )
    return DescriptorBudget(files, connections)
