"""What is counted comes out of a scrape, labels stay bounded, and counting costs little."""

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from distributedlog.broker.observability.metrics import (
    OTHER,
    SECONDS_BOUNDS,
    BrokerMetrics,
    ControlStatus,
    Family,
    FamilyKind,
    Histogram,
    one,
)
from distributedlog.broker.observability.metrics_export import render
from distributedlog.broker.observability.server_metrics import ServerMetrics

REQUEST_SECONDS_MAX = 20e-6
"""Ten times of what was measured: a change for the worse shows, a busy machine does not."""


def scraped(metrics: BrokerMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels, as Prometheus would read them."""
    text = render(metrics.families()).decode("utf-8")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_api_with_their_bytes_times_and_errors() -> None:
    metrics: ServerMetrics = BrokerMetrics()
    metrics.request_received("Fetch", 17, 100)
    metrics.request_received("Fetch", 4, 50)
    metrics.request_answered("Fetch", 0.0003, 0)
    metrics.request_answered("Fetch", 2.0, 6)
    metrics.bytes_out(1000)
    metrics.requests_delayed(2)
    metrics.requests_delayed(-1)
    assert isinstance(metrics, BrokerMetrics)
    found = scraped(metrics)
    fetch = ("api", "Fetch")
    assert found["dlog_requests_total", (fetch,)] == 2
    assert found["dlog_request_bytes_total", (fetch,)] == 150
    assert found["dlog_request_seconds_count", (fetch,)] == 2
    assert found["dlog_request_seconds_sum", (fetch,)] == pytest.approx(2.0003)
    assert found["dlog_request_seconds_bucket", (fetch, ("le", "0.00025"))] == 0
    assert found["dlog_request_seconds_bucket", (fetch, ("le", "0.0005"))] == 1
    assert found["dlog_request_seconds_bucket", (fetch, ("le", "2.5"))] == 2
    assert found["dlog_request_errors_total", (fetch, ("code", "6"))] == 1
    assert found["dlog_response_bytes_total", ()] == 1000
    assert found["dlog_delayed_requests", ()] == 1


def test_connections_come_and_go() -> None:
    metrics = BrokerMetrics()
    metrics.connection_opened("PLAINTEXT")
    metrics.connection_opened("PLAINTEXT")
    metrics.connection_closed("PLAINTEXT", "idle")
    found = scraped(metrics)
    listener = ("listener", "PLAINTEXT")
    assert found["dlog_connections", (listener,)] == 1
    assert found["dlog_connections_opened_total", (listener,)] == 2
    assert found["dlog_connections_closed_total", (listener, ("reason", "idle"))] == 1


def test_topics_disk_and_loop_are_counted() -> None:
    metrics = BrokerMetrics()
    metrics.produced("orders", 10, 1000)
    metrics.fetched("orders", 5, 500)
    metrics.synced(0.004)
    metrics.data_loop_lagged(0.02)
    found = scraped(metrics)
    orders = (("topic", "orders"),)
    assert found["dlog_topic_records_in_total", orders] == 10
    assert found["dlog_topic_bytes_in_total", orders] == 1000
    assert found["dlog_topic_records_out_total", orders] == 5
    assert found["dlog_topic_bytes_out_total", orders] == 500
    assert found["dlog_fsync_seconds_count", ()] == 1
    assert found["dlog_data_loop_lag_seconds_sum", ()] == pytest.approx(0.02)
    assert metrics.data_loop_lag_seconds == 0.02
    metrics.forget_topic("orders")
    assert ("dlog_topic_records_in_total", orders) not in scraped(metrics)


def test_the_control_plane_is_shown_as_it_was_last_told() -> None:
    metrics = BrokerMetrics()
    metrics.control = ControlStatus(
        role="leader", leader_id=3, term=7, commit_index=42, elections=2, is_active_controller=True,
        image_offset=41, brokers=3, brokers_fenced=1, is_fenced=False, heartbeats=9, heartbeats_failed=1,
        refused={"not a member": 4},
    )  # fmt: skip
    found = scraped(metrics)
    assert found["dlog_raft_role", (("role", "leader"),)] == 1
    assert found["dlog_raft_role", (("role", "follower"),)] == 0
    assert found["dlog_raft_leader_id", ()] == 3
    assert found["dlog_raft_term", ()] == 7
    assert found["dlog_raft_commit_index", ()] == 42
    assert found["dlog_raft_elections_total", ()] == 2
    assert found["dlog_controller_active", ()] == 1
    assert found["dlog_metadata_offset", ()] == 41
    assert found["dlog_brokers", ()] == 3
    assert found["dlog_brokers_fenced", ()] == 1
    assert found["dlog_broker_fenced", ()] == 0
    assert found["dlog_heartbeats_total", ()] == 9
    assert found["dlog_heartbeats_failed_total", ()] == 1
    assert found["dlog_control_refused_total", (("reason", "not a member"),)] == 4


def test_a_source_is_asked_at_each_scrape() -> None:
    metrics = BrokerMetrics()
    sizes = [100.0]
    metrics.add_source(lambda: [one(FamilyKind.GAUGE, "dlog_log_bytes", "Of all logs.", sizes[0])])
    assert scraped(metrics)["dlog_log_bytes", ()] == 100
    sizes[0] = 200
    assert scraped(metrics)["dlog_log_bytes", ()] == 200


def test_the_process_itself_is_shown_too() -> None:
    found = scraped(BrokerMetrics())
    assert found["process_resident_memory_bytes", ()] > 0
    assert found["process_open_fds", ()] > 0


def test_a_label_from_outside_cannot_break_out_of_its_line() -> None:
    metrics = BrokerMetrics()
    hostile = 'a"} 1\nfake_metric 2\\'
    metrics.connection_closed("PLAINTEXT", hostile)
    found = scraped(metrics)
    assert ("fake_metric", ()) not in found
    assert found["dlog_connections_closed_total", (("listener", "PLAINTEXT"), ("reason", hostile))] == 1


def test_names_beyond_the_bound_are_counted_together() -> None:
    metrics = BrokerMetrics(topics_max=3)
    for number in range(10):
        metrics.produced(f"topic-{number}", 1, 1)
    for number in range(1000):
        metrics.request_received(f"Api{number}", 0, 1)
        metrics.connection_closed("PLAINTEXT", f"reason {number}")
    found = scraped(metrics)
    topics = {labels for name, labels in found if name == "dlog_topic_records_in_total"}
    assert len(topics) == 4
    assert found["dlog_topic_records_in_total", (("topic", OTHER),)] == 7
    assert len([name for name, _ in found if name == "dlog_requests_total"]) == 257
    assert len([name for name, _ in found if name == "dlog_connections_closed_total"]) == 65


@given(st.lists(st.floats(0, 100), max_size=50))
@settings(max_examples=100, deadline=None)
def test_a_histogram_counts_each_value_once_in_the_bucket_it_fits(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    for at, bound in enumerate(SECONDS_BOUNDS):
        assert sum(histogram.counts[: at + 1]) == sum(value <= bound for value in values)
    assert sum(histogram.counts) == len(values)


def test_a_scrape_shows_one_moment_while_counting_goes_on() -> None:
    metrics = BrokerMetrics()
    metrics.request_answered("Fetch", 0.1, 0)
    families: list[Family] = metrics.families()
    metrics.request_answered("Fetch", 0.1, 0)
    assert b'dlog_request_seconds_count{api="Fetch"} 1.0' in render(families)


def test_counting_a_request_costs_little() -> None:
    metrics = BrokerMetrics()
    best = min(_seconds_per_request(metrics) for _ in range(5))
    assert best < REQUEST_SECONDS_MAX


def _seconds_per_request(metrics: BrokerMetrics, requests: int = 2000) -> float:
    begun = time.perf_counter()
    for _ in range(requests):
        metrics.request_received("Produce", 9, 1024)
        metrics.produced("orders", 10, 1024)
        metrics.bytes_out(100)
        metrics.request_answered("Produce", 0.0004, 0)
    return (time.perf_counter() - begun) / requests


def test_counting_needs_no_client_library() -> None:
    program = (
        "import sys, distributedlog.broker.observability.operations; "
        "from distributedlog.broker.observability.metrics import BrokerMetrics; "
        "BrokerMetrics().families(); sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
