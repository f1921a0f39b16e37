"""The storage engine in your own process, with no server.

>>> from distributedlog import Log
>>> with Log.open("events") as log:
...     log.append(b"hello", key=b"greeting")
0
"""

from distributedlog.embedded.log import Log
from distributedlog.embedded.store import Store

__all__ = ["Log", "Store"]
