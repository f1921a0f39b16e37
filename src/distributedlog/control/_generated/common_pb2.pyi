from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Header(_message.Message):
    __slots__ = ("version", "version_required", "cluster_id", "sender_id", "receiver_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    version_required: int
    cluster_id: str
    sender_id: int
    receiver_id: int
    def __init__(self, version: _Optional[int] = ..., version_required: _Optional[int] = ..., cluster_id: _Optional[str] = ..., sender_id: _Optional[int] = ..., receiver_id: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "kind", "outcome_unknown", "leader_id")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    kind: str
    outcome_unknown: bool
    leader_id: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., kind: _Optional[str] = ..., outcome_unknown: bool = ..., leader_id: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: int
    message: str
    def __init__(self, error: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
