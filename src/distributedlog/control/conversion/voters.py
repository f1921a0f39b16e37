"""Registrations of controllers, and changes of who votes."""

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget, text, uuid
from distributedlog.controller.image import ControllerRegistration
from distributedlog.controller.requests import (
    AddVoterRequest,
    RegisterControllerRequest,
    RemoveVoterRequest,
)


def register_controller(request: RegisterControllerRequest) -> pb.RegisterControllerRequest:
    controller_id, directory_id, incarnation, host, port = request.registration
    return pb.RegisterControllerRequest(
        cluster_id=request.cluster_id,
        registration=pb.ControllerRegistration(
            controller_id=controller_id,
            directory_id=directory_id.bytes16,
            incarnation=incarnation,
            host=host,
            port=port,
        ),
    )


def register_controller_from(
    message: pb.RegisterControllerRequest, _budget: Budget
) -> RegisterControllerRequest:
    given = message.registration
    return RegisterControllerRequest(
        text(message.cluster_id),
        ControllerRegistration(
            given.controller_id, uuid(given.directory_id), given.incarnation, text(given.host), given.port
        ),
    )


def add_voter(request: AddVoterRequest) -> pb.AddVoterRequest:
    return pb.AddVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter_id,
        directory_id=request.directory_id.bytes16,
        await_commit=request.await_commit,
    )


def add_voter_from(message: pb.AddVoterRequest, _budget: Budget) -> AddVoterRequest:
    return AddVoterRequest(
        _cluster_of(message), message.voter_id, uuid(message.directory_id), message.await_commit
    )


def remove_voter(request: RemoveVoterRequest) -> pb.RemoveVoterRequest:
    return pb.RemoveVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter_id,
        directory_id=request.directory_id.bytes16,
    )


def remove_voter_from(message: pb.RemoveVoterRequest, _budget: Budget) -> RemoveVoterRequest:
    return RemoveVoterRequest(_cluster_of(message), message.voter_id, uuid(message.directory_id))


def _cluster_of(message: pb.AddVoterRequest | pb.RemoveVoterRequest) -> str | None:
    return text(message.cluster_id) if message.HasField("cluster_id") else None
