"""The patterns for programs on an asyncio loop; `distributedlog.patterns` has them for all others."""

from distributedlog.patterns.correlation import RemoteError
from distributedlog.patterns.replies import Requester
from distributedlog.patterns.retries import DeadLetterError, RetryPolicy
from distributedlog.patterns.runner import Runner
from distributedlog.patterns.table import TopicTable

__all__ = ["DeadLetterError", "RemoteError", "Requester", "RetryPolicy", "Runner", "TopicTable"]
