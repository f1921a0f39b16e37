"""The cluster's topics as group coordinators see them, from an image of the metadata.

Images share what did not change, so two of them can be compared by the maps that they hold: a group looks at
its topics again only when a map is another.
"""

from collections.abc import Iterable, Mapping

from distributedlog.controller.image import MetadataImage, ResourceType
from distributedlog.groups.consumer.topics import TopicView
from distributedlog.model.ids import Uuid
from distributedlog.model.internal_topics import INTERNAL_TOPICS

NO_SETTINGS: Mapping[str, str] = {}


class TopicsView:
    """The topics of one metadata image."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def mark(self) -> object:
        return self._image.topics

    @property
    def names_mark(self) -> object:
        return self._image.topic_ids

    @property
    def version(self) -> int:
        return self._image.offset

    def named(self, name: str) -> TopicView | None:
        topic = self._image.topic_named(name)
        return None if topic is None else TopicView(topic.topic_id, name, len(topic.partitions))

    def name_of(self, topic_id: Uuid) -> str | None:
        topic = self._image.topics.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return (name for name in self._image.topic_ids if name not in INTERNAL_TOPICS)

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        own = self._image.settings_of(ResourceType.GROUP, group_id)
        return dict(own.items()) if own else NO_SETTINGS
