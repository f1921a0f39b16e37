"""Topics that were looked for in the newest image, so that those in use are found by one look.

An image's maps are made for being changed, and a look into one takes several steps; between two changes the
same few topics are asked for again and again.  What is kept is of one image, and goes when there is another.
Only topics that are there are kept, so there are never more than the image has.
"""

from distributedlog.controller.image import MetadataImage, Topic
from distributedlog.model.ids import Uuid


class TopicsSeen:
    __slots__ = ("_by_id", "_by_name", "_image")

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[Uuid, Topic] = {}

    def named(self, image: MetadataImage, name: str) -> Topic | None:
        if image is not self._image:
            self._begin(image)
        topic = self._by_name.get(name)
        if topic is None and (topic := image.topic_named(name)) is not None:
            self._by_name[name] = topic
        return topic

    def with_id(self, image: MetadataImage, topic_id: Uuid) -> Topic | None:
        if image is not self._image:
            self._begin(image)
        topic = self._by_id.get(topic_id)
        if topic is None and (topic := image.topics.get(topic_id)) is not None:
            self._by_id[topic_id] = topic
        return topic

    def _begin(self, image: MetadataImage) -> None:
        self._image = image
        self._by_name.clear()
        self._by_id.clear()
