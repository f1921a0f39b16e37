"""Brings the clients that do not come with the virtual environment: `python -m tests.compat.broker.install`.

KafkaJS and its codecs come by npm, as package-lock.json has them, into kafkajs/node_modules.  kcat, and
Node.js where it is missing, are Debian's packages: root is needed for them.  What cannot be had is named, and
the exit code is 1: the tests do not pass over a client that is not there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

KAFKAJS = Path(__file__).parent / "kafkajs"
LOCK = KAFKAJS / "package-lock.json"
STAMP = KAFKAJS / "node_modules" / ".installed-lock.json"
PACKAGES = {"kcat": "kcat", "node": "nodejs", "npm": "npm"}


def missing_commands() -> list[str]:
    return [command for command in PACKAGES if shutil.which(command) is None]


def is_kafkajs_installed() -> bool:
    """Returns whether it is installed as it is locked now, not as it was locked once."""
    return STAMP.is_file() and STAMP.read_bytes() == LOCK.read_bytes()


def install_commands(commands: list[str]) -> None:
    packages = [PACKAGES[command] for command in commands]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit(
            f"not found: {', '.join(commands)}.  Install the Debian packages {' '.join(packages)} "
            "(as root: apt-get install), or what your system calls them, and try again."
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        ran = subprocess.run(
            ["apt-get", "-q", *step],
            env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if ran.returncode != 0:
            sys.exit(f"apt-get {' '.join(step)} failed:\n{ran.stdout}")


def install_kafkajs() -> None:
    ran = subprocess.run(
        ["npm", "ci"], cwd=KAFKAJS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode != 0:
        sys.exit(f"npm ci failed in {KAFKAJS}:\n{ran.stdout}")
    STAMP.write_bytes(LOCK.read_bytes())


def main() -> None:
    commands = missing_commands()
    if commands:
        install_commands(commands)
    if not is_kafkajs_installed():
        install_kafkajs()


if __name__ == "__main__":
    main()
