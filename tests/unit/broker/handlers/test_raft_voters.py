"""AddRaftVoter and RemoveRaftVoter: what the controller is asked, and its refusals in Kafka's codes.

What becomes of it is in tests/unit/broker/cluster/test_voter_changes.py.
"""

import pytest

from distributedlog.controller import requests as controller
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    DlogError,
    DuplicateVoterError,
    InconsistentClusterIdError,
    InvalidVoterKeyError,
    VoterNotFoundError,
)
from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from distributedlog.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

DIRECTORY = Uuid(bytes(range(16)))
REMOVAL = RemoveRaftVoterRequest(cluster_id="c", voter_id=2, voter_directory_id=DIRECTORY)


def addition(*, ack_when_committed: bool = True) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id="c",
        timeout_ms=5_000,
        voter_id=2,
        voter_directory_id=DIRECTORY,
        listeners=[Listener(name="CONTROLLER", host="elsewhere", port=1)],
        ack_when_committed=ack_when_committed,
    )


@pytest.mark.parametrize("version", versions_of(AddRaftVoterRequest))
def test_the_controller_is_asked_for_the_node_and_its_directory_for_as_long_as_the_request_says(
    version: int,
) -> None:
    broker = Broker()
    broker.controller.failure = VoterNotFoundError("enough is known")
    broker.ask(addition(ack_when_committed=version == 0), version, AddRaftVoterResponse)
    ((asked, timeout_ms),) = broker.controller.asked[-1:]
    assert asked == controller.AddVoterRequest("c", 2, DIRECTORY, await_commit=not version)
    assert timeout_ms == 5_000
    broker.ask(REMOVAL, 0, RemoveRaftVoterResponse)
    assert broker.controller.asked[-1][0] == controller.RemoveVoterRequest("c", 2, DIRECTORY)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (DuplicateVoterError("it votes"), ErrorCode.DUPLICATE_VOTER),
        (VoterNotFoundError("it does not"), ErrorCode.VOTER_NOT_FOUND),
        (InvalidVoterKeyError("another disk"), ErrorCode.INVALID_VOTER_KEY),
        (InconsistentClusterIdError("another cluster"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_a_refusal_comes_with_its_reason(refusal: DlogError, code: ErrorCode) -> None:
    broker = Broker()
    broker.controller.failure = refusal
    added = broker.ask(addition(), 1, AddRaftVoterResponse)
    removed = broker.ask(REMOVAL, 0, RemoveRaftVoterResponse)
    assert (added.error_code, added.error_message) == (code, str(refusal))
    assert (removed.error_code, removed.error_message) == (code, str(refusal))
