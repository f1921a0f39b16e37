"""Small files that are replaced as a whole and survive a power cut.

A reader finds the old one or the new one.
"""

import os


def replace_file(path: str, data: bytes) -> None:
    """Written beside it, synced, renamed; the name of what is written begins with a dot."""
    fresh = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.fresh")
    with open(fresh, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_directory(os.path.dirname(path))


def sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """So that names in it are there after a power cut."""
    sync_file(path)
