from distributedlog.control._generated import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RaftFrame(_message.Message):
    __slots__ = ("hello", "message")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    hello: _common_pb2.Header
    message: bytes
    def __init__(self, hello: _Optional[_Union[_common_pb2.Header, _Mapping]] = ..., message: _Optional[bytes] = ...) -> None: ...

class RaftClosed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
