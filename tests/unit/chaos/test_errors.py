"""Errors that consumers met are counted; what no fault excuses is found."""

import io
from collections import Counter

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerError
from tests.chaos.errors import describe_errors, judge_errors
from tests.reliability.journal import Gathered, Journal, Met


def test_what_a_client_met_is_counted_by_what_it_did() -> None:
    out, gathered = io.StringIO(), Gathered()
    journal = Journal("c-own", out)
    for _ in range(2):
        journal.met("poll", "NOT_LEADER_OR_FOLLOWER", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    journal.met_exception("commit", ValueError("not assigned"))
    for line in out.getvalue().splitlines():
        gathered.add(line)
    assert gathered.met == {
        Met("c-own", "poll", "NOT_LEADER_OR_FOLLOWER", 6): 2,
        Met("c-own", "commit", "ValueError", None): 1,
    }
    told = describe_errors(gathered.met)
    assert "c-own at commit: ValueError 1; c-own at poll: NOT_LEADER_OR_FOLLOWER 2" in told
    assert judge_errors(gathered.met) == []
    assert describe_errors(Counter()).endswith("none")


def test_an_answer_without_a_class_of_its_own_is_what_the_broker_said() -> None:
    out, gathered = io.StringIO(), Gathered()
    Journal("c-own", out).met_exception("poll", BrokerError("x", ErrorCode.NOT_COORDINATOR))
    gathered.add(out.getvalue())
    assert gathered.met == {Met("c-own", "poll", "NOT_COORDINATOR", ErrorCode.NOT_COORDINATOR): 1}
    assert judge_errors(gathered.met) == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_no_fault_excuses_is_an_anomaly(code: int) -> None:
    (found,) = judge_errors(Counter({Met("c", "poll", "X", code): 3, Met("c", "poll", "Y", -190): 1}))
    assert found.name == "error met"
    assert "c at poll: X, 3 times" in found.text
