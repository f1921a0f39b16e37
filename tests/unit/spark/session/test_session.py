"""What a session is told, and how it refuses; sessions themselves are in tests/spark."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from distributedlog._version import __version__
from distributedlog.model.errors import DirectoryLockedError, SparkNotReadyError
from distributedlog.spark.session import session as sessions
from distributedlog.spark.session.session import is_local, require_packages, settings_for, settings_for_logs
from distributedlog.spark.session.workers import judge, looker

module = sys.modules["distributedlog.spark.session.session"]
"""The package has the function under the same name."""


def test_without_a_directory_the_catalog_is_in_memory() -> None:
    settings = settings_for("x", "local[2]", None)
    assert "spark.sql.catalogImplementation" not in settings
    assert settings["spark.driver.host"] == "127.0.0.1"


def test_with_a_directory_tables_outlive_the_process(tmp_path: Path) -> None:
    settings = settings_for("x", "local[2]", str(tmp_path / "a b"))
    assert settings["spark.sql.catalogImplementation"] == "hive"
    assert settings["spark.sql.warehouse.dir"] == f"file://{tmp_path}/a b/warehouse"
    assert str(tmp_path / "a b" / "metastore") in settings["spark.hadoop.javax.jdo.option.ConnectionURL"]
    assert "derby.system.home" in settings_for_logs(str(tmp_path))


def test_a_cluster_is_not_told_that_the_driver_is_this_machines_loopback() -> None:
    assert "spark.driver.host" not in settings_for("x", "spark://host:7077", None)
    assert is_local("local")
    assert is_local("local[*]")
    assert not is_local("local-cluster[2,1,1024]")
    assert not is_local("spark://local:7077")


def test_the_connect_server_listens_on_loopback_only() -> None:
    settings = settings_for("x", "local[2]", None, with_connect=True)
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert settings["spark.connect.grpc.binding.port"] == "0"


def test_the_logging_that_is_named_is_there() -> None:
    place = settings_for_logs(None).split("=", 1)[1]
    assert Path(place.removeprefix("file://")).is_file()


def test_what_is_missing_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name in ("pyspark", "pandas") else object())
    with pytest.raises(SparkNotReadyError, match=r"\(pyspark, pandas\).*distributedlog\[spark\]"):
        require_packages()


def test_one_directory_is_for_one_process(tmp_path: Path) -> None:
    module._take(str(tmp_path))
    try:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # flock is held by the open file, so another process is what it takes
            os.close(module._lock or -1)
            try:
                module._take(str(tmp_path))
                os.write(writer, b"taken")
            except DirectoryLockedError:
                os.write(writer, b"refused")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 100) == b"refused"
        os.close(reader)
        os.close(writer)
    finally:
        assert module._lock is not None
        os.close(module._lock)
        vars(module)["_lock"] = None


def test_workers_that_lack_something_are_named() -> None:
    judge("spark://x", [("a", __version__, ""), ("b", __version__, "")])
    with pytest.raises(SparkNotReadyError, match=r"b: no pyarrow.*pip install"):
        judge("spark://x", [("a", __version__, ""), ("b", __version__, "no pyarrow (not found)")])
    with pytest.raises(SparkNotReadyError, match=r"b has 0\.0\.1"):
        judge("spark://x", [("a", __version__, ""), ("b", "0.0.1", "")])


def test_a_worker_can_be_asked_before_it_has_our_package() -> None:
    """What is sent carries its code, and no name of ours that would have to be imported first."""
    from pyspark.cloudpickle import dumps

    sent = dumps(looker())  # type: ignore[no-untyped-call]
    code = (
        "import sys, pickle; sys.modules['distributedlog'] = None; "
        "print(pickle.load(sys.stdin.buffer)(iter(())).__next__()[1:])"
    )
    told = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert b"no distributedlog" in told.stdout
    ((_, version, problem),) = looker()(iter(()))
    assert (version, problem) == (__version__, "")


def test_a_jvm_whose_gateway_does_not_come_back_is_ended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "JVM_TIMEOUT_SECONDS", 0.05)
    waiting = threading.Event()

    class Gateway:
        proc = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE)

        def shutdown(self) -> None:
            waiting.wait()

    try:
        sessions._end_jvm(Gateway())
        assert Gateway.proc.poll() is not None
    finally:
        waiting.set()
        Gateway.proc.kill()
