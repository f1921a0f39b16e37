"""Producer ids, given out to brokers in blocks.

A block is taken by one record and never given twice: a broker that crashes with a block loses the rest of it,
and there are enough.
"""

from typing import Final

from distributedlog.controller.brokers import check_epoch
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.records import ProducerIdsTaken
from distributedlog.controller.requests import AllocateProducerIdsRequest, ProducerIdBlock
from distributedlog.model.config import INT64_MAX
from distributedlog.model.errors import OverloadedError
from distributedlog.protocol.schema import Message

BLOCK_COUNT: Final = 1_000


def allocate(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> tuple[list[Message], ProducerIdBlock]:
    check_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    if first > INT64_MAX - BLOCK_COUNT:
        raise OverloadedError("all producer ids are given out")
    record = ProducerIdsTaken(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + BLOCK_COUNT,
    )
    return [record], ProducerIdBlock(first, BLOCK_COUNT)
