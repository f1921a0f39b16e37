"""The client for programs on an asyncio loop; `distributedlog` itself has the one for all others.

async with aio.Producer("127.0.0.1:9092") as producer:
    await producer.send("news", "hello")
"""

from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.faces.aio_admin import Admin
from distributedlog.client.faces.aio_consumer import Consumer
from distributedlog.client.faces.aio_producer import Producer
from distributedlog.client.faces.delivery import Delivery, RecordMetadata
from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.client.transactions.manager import GroupMetadata
from distributedlog.model.ids import TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "GroupMetadata",
    "NewTopic",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
]
