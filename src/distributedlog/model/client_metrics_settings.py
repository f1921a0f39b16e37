"""Settings of subscriptions to clients' metrics (KIP-714), by Kafka's names.

    metrics        prefixes of the names of metrics; none, or `*` for all
    interval.ms    how often clients push them: 100 ms to an hour
    match          which clients: `client_id=…` and its like, each with a regular expression

They are kept and described, and have no effect: clients are not asked for metrics.  They are checked as Kafka
checks them, with its error codes: what is no setting, and an interval out of bounds, is an invalid request.
Regular expressions are read as Python's, which for selectors of clients is the same as Java's.
"""

import re
from collections.abc import Mapping
from typing import Final

from distributedlog.model.config import HOUR_MS, INT32_MAX, MINUTE_MS
from distributedlog.model.errors import ConfigError, InvalidRequestError
from distributedlog.model.kept_settings import KeptSetting
from distributedlog.model.setting_text import quote, read_list, read_whole_number

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
INTERVAL_MS_MIN: Final = 100
SELECTORS: Final = frozenset(
    ("client_instance_id", "client_id", "client_software_name", "client_software_version",
     "client_source_address", "client_source_port")
)  # fmt: skip
EXPRESSION_LENGTH_MAX: Final = 1_000


def _read_selectors(name: str, text: str) -> tuple[str, ...]:
    selectors = read_list(name, text)
    for selector in selectors:
        of, _, expression = (part.strip() for part in selector.partition("="))
        if of not in SELECTORS or not expression or "=" in expression:
            raise ConfigError(f"{name} cannot be {quote(text)}: {quote(selector)} selects no clients")
        if len(expression) > EXPRESSION_LENGTH_MAX or not _is_expression(expression):
            raise ConfigError(f"{name} cannot be {quote(text)}: it has an invalid regular expression")
    return selectors


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


_NOBODY: Final = "Clients are not asked for metrics."
CLIENT_METRICS_SETTINGS: Final[Mapping[str, KeptSetting]] = {
    setting.name: setting
    for setting in (
        KeptSetting(INTERVAL, read_whole_number, 5 * MINUTE_MS, _NOBODY, -INT32_MAX - 1, INT32_MAX),
        KeptSetting(MATCH, _read_selectors, (), _NOBODY),
        KeptSetting(METRICS, read_list, (), _NOBODY),
    )
}


def check_settings(settings: Mapping[str, str]) -> None:
    """All settings that a subscription would have."""
    unknown = [name for name in settings if name not in CLIENT_METRICS_SETTINGS]
    if unknown:
        known = ", ".join(CLIENT_METRICS_SETTINGS)
        raise InvalidRequestError(
            f"unknown setting {unknown[0][:100]!r}; of clients' metrics known are {known}"
        )
    values = {name: CLIENT_METRICS_SETTINGS[name].parse(text) for name, text in settings.items()}
    interval_ms = values.get(INTERVAL, INTERVAL_MS_MIN)
    if not INTERVAL_MS_MIN <= interval_ms <= HOUR_MS:
        raise InvalidRequestError(
            f"{INTERVAL} is {interval_ms}; it must lie between {INTERVAL_MS_MIN} and {HOUR_MS}"
        )
