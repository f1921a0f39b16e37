import inspect

from distributedlog.model import errors
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, StorageError


def own_errors() -> list[type[DlogError]]:
    classes = [member for _, member in inspect.getmembers(errors, inspect.isclass)]
    return [member for member in classes if issubclass(member, DlogError)]


def test_one_root_catches_every_error() -> None:
    in_module = [
        member for _, member in inspect.getmembers(errors, inspect.isclass) if issubclass(member, Exception)
    ]
    assert len(in_module) > 20
    assert all(issubclass(member, DlogError) for member in in_module)


def test_no_error_is_answered_as_a_success() -> None:
    for error in own_errors():
        assert isinstance(error.code, ErrorCode)
        assert error.code is not ErrorCode.NONE, error


def test_whatever_fails_on_the_disk_is_a_storage_error_to_clients() -> None:
    assert all(
        error.code is ErrorCode.KAFKA_STORAGE_ERROR
        for error in own_errors()
        if issubclass(error, StorageError)
    )


def test_codes_are_numbered_without_gaps_as_the_protocol_does() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    known = {
        56: ErrorCode.KAFKA_STORAGE_ERROR,
        74: ErrorCode.FENCED_LEADER_EPOCH,
        129: ErrorCode.REBOOTSTRAP_REQUIRED,
    }
    assert {number: ErrorCode(number) for number in known} == known
