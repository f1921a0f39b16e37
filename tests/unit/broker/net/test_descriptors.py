"""Descriptors are shared out, so that clients cannot take those of the logs."""

import logging
import resource

import pytest

from distributedlog.broker.net.descriptors import CONNECTIONS_MIN, FILES_MIN, raise_limit, share


def test_with_plenty_everyone_gets_what_was_wanted() -> None:
    assert share(65_536, 10_000) == (1_024, 10_000)


def test_with_few_they_are_shared_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        budget = share(64, 10_000)
    assert budget == (16, 32)
    assert "at most 32 connections" in caplog.text


def test_there_is_always_something() -> None:
    assert share(1, 10_000) == (FILES_MIN, CONNECTIONS_MIN)


def test_the_limit_is_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert raise_limit() >= min(before[0], 65_536)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
