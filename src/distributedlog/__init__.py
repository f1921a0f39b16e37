"""distributedlog: a distributed commit log for Python and Spark.

The names a program needs are here and are imported when first touched, so that `import distributedlog`
(and with it `dlog --help`) stays instant.
"""

import os
from typing import TYPE_CHECKING, Any

from distributedlog._version import __version__

if os.environ.get("DLOG_KERNEL") == "interpreted":
    from distributedlog._interpreted import prefer_interpreted_kernel

    prefer_interpreted_kernel()

if TYPE_CHECKING:
    from distributedlog.embedded import Log as Log
    from distributedlog.embedded import Store as Store
    from distributedlog.model.config import LogConfig as LogConfig
    from distributedlog.records.record import Header as Header
    from distributedlog.records.record import Record as Record

_HOMES = {
    "Log": "distributedlog.embedded",
    "Store": "distributedlog.embedded",
    "LogConfig": "distributedlog.model.config",
    "Header": "distributedlog.records.record",
    "Record": "distributedlog.records.record",
}

__all__ = ["Header", "Log", "LogConfig", "Record", "Store", "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'distributedlog' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
