"""Metadata of topics as responses, and the response to "all topics" kept ready.

Many clients ask for everything, again and again, while the response for 10,000 partitions takes tens of
milliseconds to make: too long for a loop that serves everyone.  So it is made in slices, between which others
have their turn, and kept.  Images are immutable and share what did not change, so what was made of one is
right as long as it is the same object:

    the whole response, encoded     kept while the image is the same
    a topic's part, as structs    kept while the topic and the brokers are the same, across images

so an image that changes one topic costs encoding, and one that changes nothing costs nothing.  What is kept
is never changed: responses may share it.  Only the last IMAGES_MAX images are held on to (several, since
several brokers may live in one process).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Iterator
from typing import Final, NamedTuple, cast

from distributedlog.broker.cluster.listener_view import controller_for_clients, in_order, nodes_on, reach_of
from distributedlog.broker.handlers._operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from distributedlog.controller.image import Broker, MetadataImage, Partition, Topic
from distributedlog.controller.persistent_map import PersistentMap
from distributedlog.model.buffers import Buffer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from distributedlog.model.internal_topics import INTERNAL_TOPICS
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.codec import Part, encode
from distributedlog.protocol.kinds import INT16, INT32, Kind
from distributedlog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from distributedlog.protocol.schema import Message, field

IMAGES_MAX: Final = 4
VIEWS_MAX: Final = 8
THROTTLE_BYTES: Final = 4
SLICE_PARTITIONS: Final = 1_000
"""How many are described before others have their turn."""


_PARTS: Final[Kind[list[Part]]] = Kind()
"""A value that is on no wire."""


class EncodedMetadata(Message, api_key=ApiKey.METADATA, versions=(0, 13), flexible_since=9):
    """A MetadataResponse that is encoded already, for the version that it was asked in."""

    parts: list[Part] = field(_PARTS)
    error_code: int = field(INT16, default=0)
    throttle_time_ms: int = field(INT32, default=0)
    """The throttle time while one response is written; what is kept has none."""


def _get_parts(response: EncodedMetadata) -> list[Part]:
    """A list of its own: whoever sends it puts the frame's head in front."""
    return list(response.parts)


def _encode_throttled_parts(response: EncodedMetadata) -> list[Part]:
    """The time to wait is what the response begins with."""
    if not response.throttle_time_ms:
        return list(response.parts)
    first = cast(Buffer, response.parts[0])
    wait = response.throttle_time_ms.to_bytes(THROTTLE_BYTES, "big")
    return [wait + bytes(first[THROTTLE_BYTES:]), *response.parts[1:]]


EncodedMetadata.encoders.update(dict.fromkeys(range(3), _get_parts))
EncodedMetadata.encoders.update(dict.fromkeys(range(3, 14), _encode_throttled_parts))


def describe_cluster(
    image: MetadataImage,
    listener: str,
    topics: list[MetadataResponseTopic],
    *,
    with_operations: bool,
    with_fenced: bool,
) -> MetadataResponse:
    nodes = nodes_on(image, listener, with_fenced=with_fenced)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in nodes
        ],
        cluster_id=image.cluster_id or None,
        controller_id=controller_for_clients(image, nodes),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED_FOR,
    )


class TopicDescriber:
    """Topics as a client of one listener and version sees them."""

    def __init__(
        self, image: MetadataImage, listener: str, api_version: int, *, with_operations: bool
    ) -> None:
        self._reach = reach_of(image, listener)
        self._leaves_out_offline = api_version == 0
        self._tells_missing_listener = api_version >= 6
        self._operations = TOPIC_OPERATIONS if with_operations else NOT_ASKED_FOR

    def describe(self, topic: Topic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._describe_partition(number, partition) for number, partition in in_order(topic)],
            topic_authorized_operations=self._operations,
        )

    def describe_absent(self, name: str, error: ErrorCode) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=self._operations,
        )

    @staticmethod
    def describe_unknown_id(topic_id: Uuid) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
        )

    def _describe_partition(self, number: int, partition: Partition) -> MetadataResponsePartition:
        leader, error = self._reach.leader(partition)
        replicas = list(partition.replicas)
        isr = replicas if partition.isr == partition.replicas else list(partition.isr)
        if self._leaves_out_offline:
            online = self._reach.online
            replicas = [each for each in replicas if each in online]
            isr = [each for each in isr if each in online]
            is_short = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
            if error is ErrorCode.NONE and is_short:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        if error is ErrorCode.LISTENER_NOT_FOUND and not self._tells_missing_listener:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self._reach.offline(partition),
        )


# --- all topics --------------------------------------------------------------------------------


class _View(NamedTuple):
    """What decides how a topic is described."""

    listener: str
    leaves_out_offline: bool
    tells_missing_listener: bool
    with_operations: bool


class _Described(NamedTuple):
    brokers: PersistentMap[int, Broker]
    topics: dict[Uuid, tuple[Topic, MetadataResponseTopic]]


class _Key(NamedTuple):
    view: _View
    api_version: int
    cluster_operations: bool
    with_fenced: bool


class CachedImage(NamedTuple):
    """What was made of one image."""

    image: MetadataImage
    encoded: dict[_Key, EncodedMetadata]


class MetadataCache:
    def __init__(self) -> None:
        self._of_images: OrderedDict[int, CachedImage] = OrderedDict()
        """Keyed by the identity of the image, which is held on to: it cannot become another's."""
        self._described: OrderedDict[_View, _Described] = OrderedDict()

    def describe_all(
        self,
        image: MetadataImage,
        listener: str,
        api_version: int,
        *,
        cluster_operations: bool,
        topic_operations: bool,
        with_fenced: bool = False,
    ) -> EncodedMetadata | Awaitable[Message]:
        view = _View(listener, api_version == 0, api_version >= 6, topic_operations)
        key = _Key(view, api_version, cluster_operations, with_fenced)
        of_image = self._get_cached_image(image)
        response = of_image.encoded.get(key)
        if response is not None:
            return response
        describer = TopicDescriber(image, listener, api_version, with_operations=topic_operations)
        topics: list[MetadataResponseTopic] = []
        slices = self._describe_all(image, view, describer, topics)
        for _ in slices:  # more than one: the first is done, the others wait for their turn
            return _finish_later(of_image, key, slices, topics)
        return _finish(of_image, key, topics)

    def _get_cached_image(self, image: MetadataImage) -> CachedImage:
        of_image = self._of_images.get(id(image))
        if of_image is None:
            of_image = self._of_images[id(image)] = CachedImage(image, {})
            if len(self._of_images) > IMAGES_MAX:
                self._of_images.popitem(last=False)
        return of_image

    def _describe_all(
        self,
        image: MetadataImage,
        view: _View,
        describer: TopicDescriber,
        topics: list[MetadataResponseTopic],
    ) -> Iterator[None]:
        """Fills `topics`, and yields after each slice of work.

        Others may work on the same view in between: what one has described, the others find.
        """
        known = self._find_known(view, image.brokers)
        work = 0
        for topic_id, topic in image.topics.items():
            if work >= SLICE_PARTITIONS:
                yield
                work = 0
            entry = known.get(topic_id)
            if entry is None or entry[0] is not topic:
                entry = known[topic_id] = topic, describer.describe(topic)
                work += len(topic.partitions)
            topics.append(entry[1])
        if len(known) > len(topics):
            for topic_id in [each for each in known if each not in image.topics]:
                del known[topic_id]

    def _find_known(
        self, view: _View, brokers: PersistentMap[int, Broker]
    ) -> dict[Uuid, tuple[Topic, MetadataResponseTopic]]:
        described = self._described.get(view)
        if described is None or described.brokers is not brokers:
            self._described.pop(view, None)
            described = self._described[view] = _Described(brokers, {})
            if len(self._described) > VIEWS_MAX:
                self._described.popitem(last=False)
        return described.topics


async def _finish_later(
    of_image: CachedImage, key: _Key, slices: Iterator[None], topics: list[MetadataResponseTopic]
) -> Message:
    for _ in slices:
        await asyncio.sleep(0)
    return _finish(of_image, key, topics)


def _finish(of_image: CachedImage, key: _Key, topics: list[MetadataResponseTopic]) -> EncodedMetadata:
    response = of_image.encoded.get(key)
    if response is None:
        described = describe_cluster(
            of_image.image,
            key.view.listener,
            topics,
            with_operations=key.cluster_operations,
            with_fenced=key.with_fenced,
        )
        response = of_image.encoded[key] = EncodedMetadata(parts=encode(described, key.api_version))
    return response
