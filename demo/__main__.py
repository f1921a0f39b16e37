"""`python -m demo`: a log that keeps what it promised, and a pipeline on Spark that has everything once.

| exit code | meaning                                            |
|-----------|----------------------------------------------------|
| 0         | everything was counted and is right                |
| 1         | something promised was lost, wrong, or there twice |
| 130       | interrupted; nothing is left running               |
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rich.console import Console

from demo import shop, storage

PICTURE = Path("build") / "demo" / "lag.png"
SMALL = shop.Size(events_per_second=300, seconds=4.0)

NEXT = """
Try next:
  .venv/bin/dlog dev                                    a broker for every Kafka client; in another terminal:
  .venv/bin/dlog pipeline init shop && cd shop          a pipeline of your own, in the directory shop
  dlog topic produce orders < sample.jsonl && dlog pipeline run --every 10s
  dlog sql "SELECT * FROM orders"                       docs/pipelines.md and docs/sql.md tell more
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="few events, and only the second act")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where the lag over time is drawn")
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    console = Console(highlight=False)
    if not chosen.small:
        console.print("[bold]First: a log that keeps what it promised[/bold]\n")
        failures = storage.show()
        if failures:
            console.print(f"\n[bold red]{failures} promised records were lost or wrong[/bold red]")
            return 1
        console.print(
            "\n[bold]Then: a shop's topics become tables and topics on Spark, and a leader is killed[/bold]\n"
        )
    directory = Path(tempfile.mkdtemp(prefix="dlog-demo-"))
    try:
        code = shop.show(console, directory, chosen.picture, SMALL if chosen.small else shop.Size())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if code:
        console.print("\n[bold red]The proof failed.[/bold red]")
        return code
    console.print("\n[bold green]Nothing promised was lost.[/bold green]")
    console.print(NEXT, soft_wrap=True)
    return 0


class Interrupts:
    """Noted when they come: libraries in C turn the `KeyboardInterrupt` into errors of their own."""

    def __init__(self) -> None:
        self.have_come = False

    def note(self, _: int, __: FrameType | None) -> None:
        self.have_come = True
        raise KeyboardInterrupt


def run() -> int:
    interrupts = Interrupts()
    try:
        signal.signal(signal.SIGINT, interrupts.note)
        signal.signal(signal.SIGTERM, interrupts.note)
        return main()
    except BaseException as error:
        if interrupts.have_come or isinstance(error, KeyboardInterrupt):  # Spark brings a handler of its own
            return 130
        raise


if __name__ == "__main__":
    sys.exit(run())
