"""A run against Kafka that cannot take place is no success."""

from pathlib import Path

import pytest

from tests.bench import broker_kafka
from tests.compat.client.__main__ import main


@pytest.mark.parametrize("commands", [[], ["java"], ["java", "mvn"]], ids=["nothing", "java", "broken-mvn"])
def test_where_kafka_cannot_be_had_the_run_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], commands: list[str]
) -> None:
    for each in commands:
        command = tmp_path / each
        command.write_text("#!/bin/sh\necho 'no repository answers'\nexit 1\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(broker_kafka, "HOME", tmp_path / "kafka")
    assert main() == 1
    reason = ["there is no java", "there is no mvn", "no repository answers"][len(commands)]
    assert reason in capsys.readouterr().err
