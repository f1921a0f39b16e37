"""What the control side makes of a node's settings."""

import pytest

from distributedlog.broker.control_plane import controller_config
from distributedlog.data_directory.identity import Identity
from distributedlog.model.ids import ZERO_UUID
from distributedlog.settings.loading import load_settings


@pytest.mark.parametrize(("interval_ms", "silence_ms"), [(500, 1_000), (2_000, 4_000), (100, 1_000)])
def test_who_is_between_two_heartbeats_is_not_silent(interval_ms: int, silence_ms: int) -> None:
    """The controller tries the ports of silent brokers; it leaves those alone that are well."""
    given = {"broker.heartbeat.interval.ms": str(interval_ms)}
    settings = load_settings(None, given, {})
    config = controller_config(settings, Identity("cluster", 1, ZERO_UUID, -1))
    assert config.refused_timeout_ms == silence_ms
