"""Builds the record kernel as C extensions where a compiler is found.

The kernel is written in Cython's pure-Python mode: `records/_kernel*.py`; `records/*.pxd` has what it calls
of C beyond that.  The extensions are optional: when they cannot be built, the package installs all the same
and the very same files run interpreted.
"""

from pathlib import Path

from setuptools import Extension, setup

PACKAGE = "distributedlog.records"


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("Cython is not installed: the record kernel will run interpreted")
        return []
    folder = Path("src", *PACKAGE.split("."))
    sources = sorted(folder.glob("_kernel*.py"))
    declarations = sorted(map(str, folder.glob("*.pxd")))  # a source distribution holds them as `depends`
    compiled: list[Extension] = cythonize(
        [
            Extension(
                f"{PACKAGE}.{source.stem}",
                [str(source)],
                depends=declarations,
                extra_compile_args=["-O3"],
            )
            for source in sources
        ],
        build_dir="build/cython",
    )
    for extension in compiled:
        extension.optional = True
    return compiled


setup(ext_modules=extensions())
