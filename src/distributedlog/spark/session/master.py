"""Is what somebody named a master of Spark's, and does anybody answer there?  Asked before Java is started.

Spark takes a minute to find out that no master answers, and tells it with Java's stack.  Here a connection to
any of a standalone cluster's masters is enough; who does not take one within `CONNECT_SECONDS` is not there.
Other clusters (YARN, Kubernetes) are Spark's to find.
"""

import re
import socket
from typing import Final

from distributedlog.model.errors import SparkNotReadyError

CONNECT_SECONDS: Final = 5.0
STANDALONE: Final = "spark://"
_COUNT: Final = r"(?:\d+|\*)"
_KNOWN: Final = re.compile(
    rf"local|local\[{_COUNT}\]|local\[{_COUNT},\s*\d+\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|yarn|k8s://.+|spark://.+"
)
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/,\[\]]+):(\d{1,5})")


def check_master(master: str, timeout_seconds: float = CONNECT_SECONDS) -> None:
    if _KNOWN.fullmatch(master) is None:
        raise SparkNotReadyError(
            f"{master!r} is no master of Spark: write local[*], spark://HOST:7077, yarn or k8s://HOST:PORT"
        )
    if not master.startswith(STANDALONE):
        return
    failures = []
    for host, port in standalone_addresses(master):
        try:
            socket.create_connection((host, port), timeout_seconds).close()
        except (OSError, UnicodeError) as error:
            failures.append(f"{host}:{port}: {_spell(error)}")
        else:
            return
    raise SparkNotReadyError(
        f"no master of Spark answers at {master} ({'; '.join(failures)}): is it running, and is that its"
        " address? (start-master.sh says it; the port is 7077 unless it was set, and not its web page's)"
    )


def standalone_addresses(master: str) -> list[tuple[str, int]]:
    found = []
    for word in master.removeprefix(STANDALONE).split(","):
        match = _ADDRESS.fullmatch(word.strip())
        if match is None or not 0 < int(match[2]) < 65_536:
            raise SparkNotReadyError(f"{master!r} is no master of Spark: write spark://HOST:7077")
        found.append((match[1].strip("[]"), int(match[2])))
    return found


def _spell(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return str(getattr(error, "strerror", None) or error)
