"""Registrations of controllers: kept for whoever takes over, forgotten only as they were."""

import pytest

from distributedlog.controller.features import LEVEL_CONTROLLERS, METADATA_FEATURE
from distributedlog.controller.image import ControllerRegistration
from distributedlog.controller.requests import (
    AddVoterRequest,
    ForgetControllerRequest,
    RegisterControllerRequest,
    UpdateFeaturesRequest,
)
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.error_codes import ErrorCode
from tests.unit.controller.stage import CLUSTER, Stage, config, incarnation

SECOND = ControllerRegistration(2, incarnation(5), 77, "127.0.0.1", 9093)


def test_a_registration_is_seen_by_all_who_have_the_log_or_its_snapshot() -> None:
    stage = Stage()
    stage.ask(RegisterControllerRequest(CLUSTER, SECOND), object)
    assert stage.replayed().controllers[2] == SECOND
    assert decode_snapshot(encode_snapshot(stage.image)) == stage.image
    stage.failover()
    assert stage.image.controllers[2] == SECOND


def test_one_that_says_what_is_known_costs_no_entry() -> None:
    stage = Stage()
    stage.ask(RegisterControllerRequest(CLUSTER, SECOND), object)
    entries = len(stage.log.entries)
    stage.ask(RegisterControllerRequest(CLUSTER, SECOND), object)
    assert len(stage.log.entries) == entries
    elsewhere = SECOND._replace(port=9094)
    stage.ask(RegisterControllerRequest(CLUSTER, elsewhere), object)
    assert stage.image.controllers[2] == elsewhere


def test_one_that_registered_anew_is_not_forgotten() -> None:
    stage = Stage()
    stage.ask(RegisterControllerRequest(CLUSTER, SECOND), object)
    stage.ask(ForgetControllerRequest(SECOND._replace(incarnation=76)), object)
    assert stage.image.controllers[2] == SECOND
    stage.ask(ForgetControllerRequest(SECOND), object)
    assert not stage.image.controllers
    stage.ask(ForgetControllerRequest(SECOND), object)


@pytest.mark.parametrize(
    "impossible",
    [
        SECOND._replace(controller_id=-1),
        SECOND._replace(incarnation=-1),
        SECOND._replace(host=""),
        SECOND._replace(host="h" * 254),
        SECOND._replace(port=0),
        SECOND._replace(port=65_536),
    ],
)
def test_what_cannot_be_a_controller_is_refused(impossible: ControllerRegistration) -> None:
    stage = Stage()
    request = RegisterControllerRequest(CLUSTER, impossible)
    assert stage.refusal(request) is ErrorCode.INVALID_REGISTRATION
    assert not stage.image.controllers


def test_another_cluster_is_refused_and_so_are_too_many() -> None:
    stage = Stage()
    assert stage.refusal(RegisterControllerRequest("another", SECOND)) is ErrorCode.INCONSISTENT_CLUSTER_ID
    for number in range(100):
        stage.ask(RegisterControllerRequest(CLUSTER, SECOND._replace(controller_id=number)), object)
    one_more = RegisterControllerRequest(CLUSTER, SECOND._replace(controller_id=100))
    assert stage.refusal(one_more) is ErrorCode.POLICY_VIOLATION


def test_a_cluster_of_an_earlier_level_keeps_none_until_it_is_raised() -> None:
    stage = Stage(config(bootstrap_level=LEVEL_CONTROLLERS - 1))
    stage.ask(RegisterControllerRequest(CLUSTER, SECOND), object)
    assert not stage.image.controllers
    stage.ask(UpdateFeaturesRequest(((METADATA_FEATURE, LEVEL_CONTROLLERS),)), object)
    stage.ask(RegisterControllerRequest(CLUSTER, SECOND), object)
    assert stage.image.controllers[2] == SECOND


def test_who_votes_is_not_for_the_machine_to_say() -> None:
    assert Stage().refusal(AddVoterRequest(CLUSTER, 2)) is ErrorCode.INVALID_REQUEST
