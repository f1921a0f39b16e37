"""CRC32C, as every batch, snapshot and Raft file carries it.

The function is that of the package `crc32c`, taken straight from its extension: the package's own front reads
its version from the installed metadata and brings a command line along, which costs every start about 20 ms.
Where the extension cannot be found on its own, the package is imported as it is.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, cast

Checksum = Callable[..., int]


def _from_extension() -> Checksum | None:
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        return None
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return cast("Checksum | None", getattr(extension, "crc32c", None))


def _from_package() -> Checksum:
    from crc32c import crc32c

    return crc32c


crc32c: Final[Checksum] = _from_extension() or _from_package()
"""`crc32c(data, value=0) -> int`; `value` continues an earlier sum."""
