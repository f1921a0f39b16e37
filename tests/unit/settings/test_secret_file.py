"""The file of cluster secrets: private or refused, read again when it changes, kept when that goes wrong."""

import os
import stat
from pathlib import Path

import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.settings.secret_file import SecretFile, make_secret_file, new_secret, read_secrets


def written(path: Path, *secrets: str, mode: int = 0o600) -> None:
    """Writes as an editor does: aside, then renamed."""
    scratch = path.with_suffix(".new")
    scratch.write_text("".join(secrets), encoding="ascii")
    scratch.chmod(mode)
    scratch.rename(path)


def test_it_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    before = os.umask(0)
    try:
        make_secret_file(str(path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text, secrets = read_secrets(str(path))
    assert len(secrets.accepted) == 1
    make_secret_file(str(path))
    assert path.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o601, 0o620])
def test_one_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    written(tmp_path / "secret", new_secret(), mode=mode)
    with pytest.raises(ConfigError, match=f"has the mode {mode:04o}.*chmod 600"):
        SecretFile(str(tmp_path / "secret"))


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_one_that_its_group_may_read_is_taken(tmp_path: Path, mode: int) -> None:
    """It is so where secrets are mounted for a group."""
    written(tmp_path / "secret", new_secret(), mode=mode)
    assert len(SecretFile(str(tmp_path / "secret")).current().accepted) == 1


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        SecretFile(str(tmp_path / "missing"))
    (tmp_path / "directory").mkdir()
    with pytest.raises(ConfigError, match="is no file"):
        SecretFile(str(tmp_path / "directory"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is no file"):
        SecretFile(str(tmp_path / "pipe"))


def test_a_change_is_seen_without_a_restart(tmp_path: Path) -> None:
    path, old, new = tmp_path / "secret", new_secret(), new_secret()
    written(path, old)
    file = SecretFile(str(path))
    first = file.current()
    written(path, old, new)
    both = file.current()
    assert (both.proving, len(both.accepted)) == (first.proving, 2)
    written(path, new, old)
    assert file.current().accepted == both.accepted[::-1]
    written(path, new)
    assert file.current().accepted == both.accepted[1:]


def test_a_slip_keeps_what_was_in_force_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    written(path, new_secret())
    file = SecretFile(str(path))
    before = file.current()
    written(path, "half a secr")
    for _ in range(3):
        assert file.current() == before
    assert caplog.text.count("stays as it was") == 1
    path.unlink()
    for _ in range(3):
        assert file.current() == before
    assert caplog.text.count("is gone") == 1
    written(path, again := new_secret())
    assert file.current() == read_secrets(str(path))[1]
    assert again.strip() not in caplog.text
