"""What the requests of one connection are charged against its client's quotas.

    request                          charged                              against
    Produce                          its size                             producer_byte_rate
    Fetch                            the size of its response             consumer_byte_rate
    every one                        the time that handling it took       request_percentage
    CreateTopics, CreatePartitions,
    DeleteTopics                     the partitions it is about           controller_mutation_rate

A throttled client finds the delay in the response (`throttle_time_ms`), which leaves at once, and nothing
more is read from the connection until the time is over: so those wait, too, who do not look.  Of several
waits the longest counts.  Versions of the last row that know THROTTLING_QUOTA_EXCEEDED are refused by it
while their client has used more than it may; older ones are done, and their client waits.

The time that handling took is that of the first phase; what happens later, on other threads or while the
response is delayed, is nobody's.  A replica id in a Fetch spares nobody: it is refused, and charged.
"""

from typing import Final

from distributedlog.broker.quotas.client_quotas import MICROSECONDS, Account, ClientQuotas
from distributedlog.controller.cluster_settings import read_cluster_setting
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import AS_CONFIGURED
from distributedlog.model.cluster_settings import NUM_PARTITIONS
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.create_partitions import CreatePartitionsRequest
from distributedlog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from distributedlog.protocol.messages.delete_topics import DeleteTopicsRequest
from distributedlog.protocol.schema import Message

STRICT_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""The first versions that know THROTTLING_QUOTA_EXCEEDED."""

MUTATIONS_MAX: Final = 16_000
"""The partitions that a cluster has at most: a request for more is refused, and must not cost years."""


class RequestCharges:
    """The charges of one connection.  Made once there are quotas at all."""

    __slots__ = ("_account", "_principal", "_quotas")

    def __init__(self, quotas: ClientQuotas, principal: str) -> None:
        self._quotas = quotas
        self._principal = principal
        self._account: Account | None = None

    def _of(self, client_id: str | None) -> Account:
        account = self._account
        if account is None or account.generation != self._quotas.generation or account.client_id != client_id:
            account = self._account = self._quotas.account(self._principal, client_id)
        return account

    def throttle_before_ms(self, api_key: int, version: int, client_id: str | None, now_ms: int) -> int:
        """Returns how long this request is to wait before it may be made at all; 0: it is handled now."""
        strict_from = STRICT_FROM.get(ApiKey(api_key))
        if strict_from is None or version < strict_from:
            return 0
        meter = self._of(client_id).mutations
        wait_ms = 0 if meter is None else meter.wait_ms(now_ms)
        if meter is not None and wait_ms:
            self._quotas.note(meter.key, wait_ms)
        return wait_ms

    def charge_request(
        self,
        request: Message,
        client_id: str | None,
        image: MetadataImage,
        *,
        size: int,
        seconds: float,
        now_ms: int,
    ) -> int:
        """Charges a request; returns how long its client is throttled."""
        account = self._of(client_id)
        api_key = request.api_key
        throttle_ms = self._quotas.charge(account.requests, int(seconds * MICROSECONDS), now_ms)
        if api_key == ApiKey.PRODUCE:
            throttle_ms = max(throttle_ms, self._quotas.charge(account.produced, size, now_ms))
        elif account.mutations is not None and api_key in STRICT_FROM:
            made = mutations(request, image)
            throttle_ms = max(throttle_ms, self._quotas.charge(account.mutations, made, now_ms))
        return throttle_ms

    def charge_response(self, api_key: int, client_id: str | None, size: int, now_ms: int) -> int:
        if api_key != ApiKey.FETCH:
            return 0
        return self._quotas.charge(self._of(client_id).fetched, size, now_ms)


def mutations(request: Message, image: MetadataImage) -> int:
    """Returns how many partitions a request would have made or removed."""
    return min(_asked_for(request, image), MUTATIONS_MAX)


def _asked_for(request: Message, image: MetadataImage) -> int:
    if isinstance(request, CreateTopicsRequest):
        default_partitions = read_cluster_setting(image, NUM_PARTITIONS)
        made = (_made_of(each, default_partitions) for each in request.topics)
        return 0 if request.validate_only else sum(made)
    if isinstance(request, CreatePartitionsRequest):
        added = (each.count - _partitions(image, each.name) for each in request.topics)
        return 0 if request.validate_only else sum(max(0, count) for count in added)
    if isinstance(request, DeleteTopicsRequest):
        names = {*request.topic_names, *(each.name for each in request.topics if each.name is not None)}
        by_id = (image.topics.get(each.topic_id) for each in request.topics if each.name is None)
        of_ids = sum(len(topic.partitions) for topic in by_id if topic is not None)
        return of_ids + sum(_partitions(image, name) for name in names)
    return 0


def _made_of(topic: CreatableTopic, default_partitions: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default_partitions if topic.num_partitions == AS_CONFIGURED else max(1, topic.num_partitions)


def _partitions(image: MetadataImage, name: str) -> int:
    topic = image.topic_named(name)
    return 0 if topic is None else len(topic.partitions)
