"""Python's collector of cycles rests while a simulation runs.

What it would walk through, again and again, is the whole cluster, which lives until the run is over: a tenth
of the run's time.  When it would find something depends on all that was allocated before, which is in no
seed.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_resting() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
