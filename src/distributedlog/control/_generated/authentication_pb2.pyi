from distributedlog.control._generated import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuthenticateRequest(_message.Message):
    __slots__ = ("hello", "proof")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    proof: bytes
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("header", "roles", "nonce")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    header: _common_pb2.Header
    roles: str
    nonce: bytes
    def __init__(self, header: _Optional[_Union[_common_pb2.Header, _Mapping]] = ..., roles: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class AuthenticateReply(_message.Message):
    __slots__ = ("challenge", "session_id")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    session_id: bytes
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., session_id: _Optional[bytes] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce", "proof")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    proof: bytes
    def __init__(self, nonce: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...
