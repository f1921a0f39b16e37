"""A child for the supervisor's tests, run as a program: says that it serves, then does as it is told.

python stand_in.py READY_FD HOW

serve             reports and waits for SIGTERM
refuse            says why on stderr and ends with 2, without having reported
stubborn          reports, and ignores SIGTERM
nonsense          reports something that is no report, and ends with 4
once DIR          reports the first time; from then on ends with 5 at once
"""

import json
import os
import signal
import sys
from typing import NoReturn


def main(ready_fd: int, how: str, *more: str) -> NoReturn:
    print(f"{how} begins", flush=True)
    if how == "refuse":
        print("dlog: the settings are wrong", file=sys.stderr)
        sys.exit(2)
    if how == "nonsense":
        os.write(ready_fd, b"[1, 2]")
        sys.exit(4)
    if how == "once":
        mark = os.path.join(more[0], "was here")
        if os.path.exists(mark):
            sys.exit(5)
        open(mark, "w").close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "stubborn" else lambda *_: sys.exit(0))
    report = {"pid": os.getpid(), "client": "127.0.0.1:1", "data_dir": os.getcwd()}
    os.write(ready_fd, json.dumps(report).encode() + b"\n")
    os.close(ready_fd)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
