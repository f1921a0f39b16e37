"""All messages there are, and what tests ask of any of them."""

from distributedlog.protocol.api_keys import OWN_APIS
from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from distributedlog.protocol.messages.group_records import GROUP_RECORDS
from distributedlog.protocol.messages.sink_records import (
    SinkLeaseKey,
    SinkLeaseValue,
    SinkQueryKey,
    SinkQueryValue,
)
from distributedlog.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from distributedlog.protocol.registry import APIS
from distributedlog.protocol.schema import Message

REQUESTS_AND_RESPONSES = [
    message for key, api in APIS.items() if key not in OWN_APIS for message in (api.request, api.response)
]
"""Those of Kafka."""
OWN_MESSAGES = [message for key in OWN_APIS for message in (APIS[key].request, APIS[key].response)]
CONSUMER_PROTOCOL: list[type[Message]] = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
COORDINATOR_RECORDS: list[type[Message]] = [
    *dict.fromkeys(message for pair in GROUP_RECORDS.values() for message in pair),
    TransactionLogKey,
    TransactionLogValue,
]
SINK_RECORDS: list[type[Message]] = [SinkQueryKey, SinkQueryValue, SinkLeaseKey, SinkLeaseValue]
MESSAGES = [*REQUESTS_AND_RESPONSES, *OWN_MESSAGES, *SINK_RECORDS, *CONSUMER_PROTOCOL, *COORDINATOR_RECORDS]


def name_of(message: type[Message]) -> str:
    return message.__name__


def versions_of(message: type[Message]) -> range:
    first, last = message.versions
    return range(first, last + 1)


def notable_versions_of(message: type[Message]) -> list[int]:
    """The first, the last, and those on either side of becoming flexible."""
    first, last = message.versions
    flexible = message.flexible_since
    return sorted({version for version in (first, flexible - 1, flexible, last) if first <= version <= last})
