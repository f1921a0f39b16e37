"""What a worker process of Spark has in memory for good.

Between two tasks Spark's worker collects garbage, through all that was ever imported: tens of thousands of
objects, 15 to 50 ms of CPU for each task, in which 50 MB of a log could be read.  None of it is garbage:
modules live as long as the process.  So the first task of a process sets aside what is there when it begins,
and the collector passes it over from then on.  What is made later, by any task, is collected as ever; and
what is set aside still goes when the last reference to it does.
"""

import gc
from functools import cache


@cache
def settle() -> None:
    """Sets aside what is in memory now, the first time in a process that it is called."""
    gc.freeze()
