"""The settings that only topics, groups or clients' metrics have, as DescribeConfigs tells them; most are
only kept.

Which there are stand in `model.kept_settings`, `model.group_settings` and `model.client_metrics_settings`.  A
node has no such settings: a topic has its own, or Kafka's default, which is told under the name that Kafka's
brokers have for it; those of groups and metrics have no other name.
"""

from collections.abc import Mapping
from typing import Final

from distributedlog.model import group_settings
from distributedlog.model.client_metrics_settings import CLIENT_METRICS_SETTINGS as METRICS_DECLARED
from distributedlog.model.config import INT32_MAX
from distributedlog.model.kept_settings import KEPT_SETTINGS as DECLARED
from distributedlog.model.kept_settings import KeptSetting
from distributedlog.settings.schema import Kind, Setting

WITHOUT_EFFECT: Final = "Kept and described, without effect here."


def _describe(declared: KeptSetting) -> Setting:
    kind = Kind.LIST
    if isinstance(declared.default, bool):
        kind = Kind.BOOLEAN
    elif isinstance(declared.default, int):
        kind = Kind.INT if declared.high <= INT32_MAX else Kind.LONG
    elif isinstance(declared.default, str):
        kind = Kind.STRING
    return Setting(
        name=declared.broker_name or declared.name,
        field="",
        kind=kind,
        default=declared.default,
        documentation=declared.documentation
        if declared.has_effect
        else f"{WITHOUT_EFFECT} {declared.documentation}",
        section="",
        low=declared.low,
        high=declared.high,
        topic_name=declared.name,
        parse=declared.parse,
    )


KEPT_SETTINGS: Final[Mapping[str, Setting]] = {name: _describe(each) for name, each in DECLARED.items()}
"""The settings by the name that topics have for them."""
NAMED_BY_BROKERS: Final = frozenset(name for name, each in DECLARED.items() if each.broker_name is not None)
"""Those of which Kafka's brokers have the default."""
KEPT_GROUP_SETTINGS: Final[Mapping[str, Setting]] = {
    name: _describe(each) for name, each in group_settings.KEPT_SETTINGS.items()
}
CLIENT_METRICS_SETTINGS: Final[Mapping[str, Setting]] = {
    name: _describe(each) for name, each in METRICS_DECLARED.items()
}
