"""What the kernel asks of `cython` when it runs interpreted and Cython is not installed: nothing happens.

C numbers are Python's, decorators return what they are given, `compiled` is false.  mypy reads the kernel
through this module too, so that `cython.longlong` is an `int` to it.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

compiled = False

bint: TypeAlias = bool
longlong: TypeAlias = int
ulonglong: TypeAlias = int
Py_ssize_t: TypeAlias = int
p_uchar: TypeAlias = Any
p_const_uchar: TypeAlias = Any
p_char: TypeAlias = Any
Py_buffer: TypeAlias = Any
void: TypeAlias = None


def _same(thing: F) -> F:
    return thing


def _same_class(thing: C) -> C:
    return thing


cfunc = ccall = inline = _same


class _NoGil:
    """A decorator and a context that do nothing: without a compiler there is nothing to release."""

    def __call__(self, thing: F) -> F:
        return thing

    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...


nogil = _NoGil()
cclass = final = _same_class


def exceptval(_value: int | None = None, *, check: bool = False) -> Callable[[F], F]:
    return _same


def declare(_type: Any, value: Any = None) -> Any:
    return value


def cast(_type: Any, value: Any) -> Any:
    return value


def address(value: Any) -> Any:
    return value


def _absent(*_arguments: Any) -> Any:
    raise NotImplementedError("only the compiled form calls C")


memcpy = set_item = PyType_GenericAlloc = PyObject_GC_UnTrack = _absent
PyObject_GetBuffer = PyBuffer_Release = PyMemoryView_FromMemory = _absent
PyBUF_SIMPLE = PyBUF_WRITABLE = PyBUF_READ = 0
