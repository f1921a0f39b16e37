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
    from distributedlog.client.admin.topics import NewTopic as NewTopic
    from distributedlog.client.faces.blocking_admin import Admin as Admin
    from distributedlog.client.faces.blocking_consumer import Consumer as Consumer
    from distributedlog.client.faces.blocking_producer import Producer as Producer
    from distributedlog.client.faces.delivery import RecordMetadata as RecordMetadata
    from distributedlog.client.faces.prometheus import ClientCollector as ClientCollector
    from distributedlog.client.faces.records import ConsumerRecord as ConsumerRecord
    from distributedlog.client.transactions.manager import GroupMetadata as GroupMetadata
    from distributedlog.embedded import Log as Log
    from distributedlog.embedded import Store as Store
    from distributedlog.model.config import LogConfig as LogConfig
    from distributedlog.model.errors import ApplicationRecoverableError as ApplicationRecoverableError
    from distributedlog.model.errors import ConfigError as ConfigError
    from distributedlog.model.errors import CorruptLogError as CorruptLogError
    from distributedlog.model.errors import DirectoryLockedError as DirectoryLockedError
    from distributedlog.model.errors import DiskFullError as DiskFullError
    from distributedlog.model.errors import DlogError as DlogError
    from distributedlog.model.errors import GroupRebalancedError as GroupRebalancedError
    from distributedlog.model.errors import InvalidNameError as InvalidNameError
    from distributedlog.model.errors import InvalidRecordError as InvalidRecordError
    from distributedlog.model.errors import InvalidTimestampError as InvalidTimestampError
    from distributedlog.model.errors import LogClosedError as LogClosedError
    from distributedlog.model.errors import LogDirectoryFailedError as LogDirectoryFailedError
    from distributedlog.model.errors import LogTruncationError as LogTruncationError
    from distributedlog.model.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from distributedlog.model.errors import ProducerFencedError as ProducerFencedError
    from distributedlog.model.errors import RecordTooLargeError as RecordTooLargeError
    from distributedlog.model.errors import StorageError as StorageError
    from distributedlog.model.errors import TransactionAbortableError as TransactionAbortableError
    from distributedlog.model.errors import TransactionAbortedError as TransactionAbortedError
    from distributedlog.model.ids import TopicPartition as TopicPartition
    from distributedlog.records.record import Header as Header
    from distributedlog.records.record import Record as Record

_HOMES = {
    "Admin": "distributedlog.client.faces.blocking_admin",
    "ClientCollector": "distributedlog.client.faces.prometheus",
    "Consumer": "distributedlog.client.faces.blocking_consumer",
    "ConsumerRecord": "distributedlog.client.faces.records",
    "NewTopic": "distributedlog.client.admin.topics",
    "TopicPartition": "distributedlog.model.ids",
    "Producer": "distributedlog.client.faces.blocking_producer",
    "RecordMetadata": "distributedlog.client.faces.delivery",
    "Log": "distributedlog.embedded",
    "Store": "distributedlog.embedded",
    "LogConfig": "distributedlog.model.config",
    "ConfigError": "distributedlog.model.errors",
    "CorruptLogError": "distributedlog.model.errors",
    "DirectoryLockedError": "distributedlog.model.errors",
    "DiskFullError": "distributedlog.model.errors",
    "DlogError": "distributedlog.model.errors",
    "InvalidNameError": "distributedlog.model.errors",
    "InvalidRecordError": "distributedlog.model.errors",
    "InvalidTimestampError": "distributedlog.model.errors",
    "LogClosedError": "distributedlog.model.errors",
    "LogDirectoryFailedError": "distributedlog.model.errors",
    "LogTruncationError": "distributedlog.model.errors",
    "OffsetOutOfRangeError": "distributedlog.model.errors",
    "RecordTooLargeError": "distributedlog.model.errors",
    "StorageError": "distributedlog.model.errors",
    "GroupMetadata": "distributedlog.client.transactions.manager",
    "ApplicationRecoverableError": "distributedlog.model.errors",
    "ProducerFencedError": "distributedlog.model.errors",
    "TransactionAbortableError": "distributedlog.model.errors",
    "TransactionAbortedError": "distributedlog.model.errors",
    "GroupRebalancedError": "distributedlog.model.errors",
    "Header": "distributedlog.records.record",
    "Record": "distributedlog.records.record",
}

__all__ = [
    "Admin",
    "ApplicationRecoverableError",
    "ClientCollector",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "CorruptLogError",
    "DirectoryLockedError",
    "DiskFullError",
    "DlogError",
    "GroupMetadata",
    "GroupRebalancedError",
    "Header",
    "InvalidNameError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "Log",
    "LogClosedError",
    "LogConfig",
    "LogDirectoryFailedError",
    "LogTruncationError",
    "NewTopic",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerFencedError",
    "Record",
    "RecordMetadata",
    "RecordTooLargeError",
    "StorageError",
    "Store",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'distributedlog' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
