"""The file of cluster secrets: made once for a cluster, given to each of its nodes, changed while they run.

    <directory>/__cluster_metadata/cluster.secret     where `cluster.secret.file` names no other
    32 random bytes in base64 on each line; the first proves, all are accepted     (model/cluster_secret)

Nobody but its owner may write it, and nobody but its owner and group may read it; else it is refused, since
then it is no secret.  What is made here is 0600.

A file that was changed is read again when the next secret is needed, so that a rotation takes no restart.
One that cannot be read then, or makes no sense, is told of, and what was read before stays in force: a slip
of the editor must not take a node out of its cluster.
"""

import contextlib
import logging
import os
import stat
from typing import Final

from distributedlog.model.cluster_secret import (
    SECRET_BYTES,
    SECRET_FILE_BYTES_MAX,
    ClusterSecrets,
    parse_secrets,
    spell_secret,
)
from distributedlog.model.errors import ConfigError, DlogError

PRIVATE_MODE: Final = 0o600
_FOR_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP

logger = logging.getLogger(__name__)

_Version = tuple[int, int, int]


def new_secret() -> str:
    """Returns a new secret as the text of a file."""
    return spell_secret(os.urandom(SECRET_BYTES))


def read_secrets(path: str) -> tuple[str, ClusterSecrets]:
    """The text of the file, and what it says; ConfigError if it is not there, not private, or no such."""
    text, _ = _read(path)
    return text, parse_secrets(text, path)


def _read(path: str) -> tuple[str, _Version]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"the cluster secret {path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"the cluster secret {path} is no file")
        if status.st_mode & _FOR_OTHERS:
            raise ConfigError(
                f"the cluster secret {path} has the mode {stat.S_IMODE(status.st_mode):04o}, so that others "
                f"can use it: chmod 600 {path}"
            )
        data = os.read(descriptor, SECRET_FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "replace"), _version(status)


def _version(status: os.stat_result) -> _Version:
    return status.st_mtime_ns, status.st_size, status.st_ino


def make_secret_file(path: str) -> None:
    """Makes a file with a new secret, durably, unless there is one."""
    if os.path.exists(path):
        return
    scratch = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(scratch)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
    with open(descriptor, "wb") as file:
        file.write(new_secret().encode("ascii"))
        file.flush()
        os.fsync(descriptor)
    os.replace(scratch, path)
    parent = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


class SecretFile:
    """The secrets in force."""

    def __init__(self, path: str) -> None:
        """Reads the file; ConfigError says what is wrong with it."""
        self.path = path
        text, self._seen = _read(path)
        self._secrets = parse_secrets(text, path)

    def current(self) -> ClusterSecrets:
        try:
            version = _version(os.stat(self.path))
            if version != self._seen:
                self._seen = version  # what is wrong with it is told once
                text, self._seen = _read(self.path)
                self._secrets = parse_secrets(text, self.path)
                logger.info("the cluster secret was read again: %d are accepted", len(self._secrets.accepted))
        except FileNotFoundError:
            self._report_missing()
        except (OSError, DlogError) as error:
            logger.error("the cluster secret stays as it was: %s", error)
        return self._secrets

    def _report_missing(self) -> None:
        if self._seen != _GONE:
            self._seen = _GONE
            logger.error("the cluster secret %s is gone: it stays in force until a restart", self.path)


_GONE: Final[_Version] = (0, 0, 0)
