"""What programs build on the client again and again, small and ready.

| what                 | for                                                                              |
|----------------------|----------------------------------------------------------------------------------|
| `Runner`             | handlers of records: order per key, retries with delay topics, dead letters      |
| `TopicTable`         | a compacted topic as a mapping that follows it                                   |
| `Requester`          | a request, and its reply within a time                                           |
| `Outbox`             | events written in a database's own transactions, published once and in order     |

Here they are for programs with threads; `distributedlog.patterns.aio` has them for asyncio.
"""

from distributedlog.patterns.blocking import Requester, Runner, TopicTable
from distributedlog.patterns.correlation import RemoteError
from distributedlog.patterns.outbox import Outbox, OutboxRelay
from distributedlog.patterns.retries import DeadLetterError, RetryPolicy

__all__ = [
    "DeadLetterError",
    "Outbox",
    "OutboxRelay",
    "RemoteError",
    "Requester",
    "RetryPolicy",
    "Runner",
    "TopicTable",
]
