"""Log lines: one each, with their fields, whatever a peer put into them."""

import io
import json
import logging
import re
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.logging_setup import (
    MESSAGE_LENGTH_MAX,
    ConsoleFormatter,
    JsonFormatter,
    configure_logging,
)

LOGGER = logging.getLogger("distributedlog.broker.somewhere")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("distributedlog")
    before = list(root.handlers), root.level, ours.level, logging.raiseExceptions
    yield
    root.handlers[:], raise_exceptions = before[0], before[3]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.raiseExceptions = raise_exceptions


def logged(log_format: str, log_level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(node_id=7, log_format=log_format, log_level=log_level, stream=stream)
    return stream


def record_of(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord(LOGGER.name, logging.INFO, __file__, 1, message, arguments, None)


def test_json_lines_carry_node_plane_and_fields() -> None:
    stream = logged("json")
    LOGGER.warning("%s left", "a follower", extra={"fields": {"partition": "orders-0", "node": "not this"}})
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "node": 7,
        "plane": "data",
        "logger": "distributedlog.broker.somewhere",
        "message": "a follower left",
        "partition": "orders-0",
    }


def test_the_plane_is_known_from_the_thread() -> None:
    stream = logged("json")
    thread = threading.Thread(target=LOGGER.info, args=("elected",), name="dlog-control")
    thread.start()
    thread.join()
    assert json.loads(stream.getvalue())["plane"] == "control"


def test_console_lines_are_for_people() -> None:
    stream = logged("console")
    LOGGER.warning("the disk is slow", extra={"fields": {"seconds": 2.5}})
    line = stream.getvalue()
    assert "WARN   node 7  data     somewhere  the disk is slow  seconds=2.5\n" in line


def test_only_what_is_asked_for_is_said_and_others_only_when_it_matters() -> None:
    stream = logged("console", "warning")
    LOGGER.info("a detail")
    logging.getLogger("asyncio").info("another's detail")
    assert stream.getvalue() == ""
    logging.getLogger("asyncio").warning("another's trouble")
    assert "another's trouble" in stream.getvalue()


def test_setting_it_up_again_replaces_what_was() -> None:
    first, second = logged("console"), logged("json")
    LOGGER.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_an_exception_is_told_with_its_traceback() -> None:
    for log_format in ("json", "console"):
        stream = logged(log_format)
        try:
            raise RuntimeError("no such luck")
        except RuntimeError:
            LOGGER.exception("it failed")
        text = stream.getvalue()
        assert "Traceback" in text
        assert "RuntimeError: no such luck" in text
        assert text.count("\n") == 1 or log_format == "console"


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_whatever_a_peer_wrote_a_line_stays_one_line(text: str) -> None:
    assert "\n" not in (line := ConsoleFormatter(1).format(record_of("peer said %s", text)))
    assert len(line.splitlines()) == 1
    assert json.loads(JsonFormatter(1).format(record_of("%s", text)))["message"] == text


def test_a_very_long_message_is_cut() -> None:
    line = ConsoleFormatter(1).format(record_of("x" * (MESSAGE_LENGTH_MAX * 3)))
    assert len(line) < MESSAGE_LENGTH_MAX + 200


def test_a_message_whose_arguments_do_not_fit_is_still_told() -> None:
    assert "of 3 (with arguments" in ConsoleFormatter(1).format(record_of("%d of 3", "x"))
