"""Runs the record kernel interpreted although a compiled one is installed (`DLOG_KERNEL=interpreted`).

Python prefers an extension module to a source file of the same name.  A finder placed before the others
answers for the kernel's modules with their source, which is how the test suite runs on both forms.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

KERNEL_MODULES = "distributedlog.records._kernel"
"""What the names of the kernel's modules begin with."""


class _SourceFirst(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(KERNEL_MODULES):
            return None
        source = f"{next(iter(path))}/{fullname.rpartition('.')[2]}.py"
        return importlib.util.spec_from_file_location(fullname, source)


def prefer_interpreted_kernel() -> None:
    """Makes the kernel interpreted; must be called before the kernel is imported for the first time."""
    if not any(isinstance(finder, _SourceFirst) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SourceFirst())
