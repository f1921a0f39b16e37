"""The child process behind `SystemExecutor.run_cpu`: reads pickled calls, answers pickled results."""

import os
import pickle
import signal
import sys


def main() -> None:
    """Serves until the input closes.  What a function prints goes to stderr, not into the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.nice(5)  # background work yields to the log's own
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = pickle.load(requests)  # noqa: S301 - our own parent
        except (EOFError, pickle.UnpicklingError):  # closed, or the parent was killed while it wrote
            return
        try:
            answer: tuple[object, Exception | None] = (function(*arguments), None)
        except Exception as error:
            answer = (None, error)
        try:
            pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:  # the parent is gone; what is still buffered has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
            return


if __name__ == "__main__":
    main()
