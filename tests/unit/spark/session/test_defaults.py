"""Options for the JVM: nobody's are lost, and the last word is the caller's."""

from pathlib import Path

import pytest

from distributedlog.spark.session.defaults import default_java_options, joined_java_options, read_properties

FILE = """\
# for all programs
spark.master                     spark://elsewhere:7077
spark.driver.extraJavaOptions    -Dhttp.proxyHost=proxy \\
                                 -Dhttp.proxyPort=3128
spark.executor.memory=2g
spark.app.name: ours = theirs
! spark.ignored 1
spark.empty
"""


def test_properties_are_read_as_java_reads_them() -> None:
    assert read_properties(FILE) == {
        "spark.master": "spark://elsewhere:7077",
        "spark.driver.extraJavaOptions": "-Dhttp.proxyHost=proxy -Dhttp.proxyPort=3128",
        "spark.executor.memory": "2g",
        "spark.app.name": "ours = theirs",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("# not for us \\\nspark.a -Db=1", "-Db=1"),
        ("spark.a -Db=c:\\\\d\\\\\nspark.e 1", "-Db=c:\\d\\"),
        ("spark.a  -Db\\=1\\ \\u0031", "-Db=1 1"),
        ("spark.a -Db=1\\", "-Db=1"),
        ("  spark.a\t=  -Db=1 \r\n", "-Db=1"),
    ],
)
def test_backslashes_mean_what_java_means_by_them(text: str, value: str) -> None:
    assert read_properties(text)["spark.a"] == value


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_the_options_of_spark_defaults_are_found(tmp_path: Path, variable: str) -> None:
    directory = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    directory.mkdir(exist_ok=True)
    assert default_java_options({variable: str(tmp_path)}) == ""
    (directory / "spark-defaults.conf").write_text(FILE)
    found = default_java_options({variable: str(tmp_path)})
    assert found == "-Dhttp.proxyHost=proxy -Dhttp.proxyPort=3128"


def test_options_are_put_one_behind_the_other() -> None:
    assert joined_java_options("-Da=1", "", "-Da=2 -Db=3", "-Da=4") == "-Da=1 -Da=2 -Db=3 -Da=4"
    assert joined_java_options("", "") == ""


def test_of_garbage_collectors_only_the_last_is_named() -> None:
    """Java does not start with two."""
    assert joined_java_options("-Da=1", "-XX:+UseG1GC -Db=2", "-XX:+UseSerialGC") == (
        "-Da=1 -Db=2 -XX:+UseSerialGC"
    )
    assert joined_java_options("-XX:+UseG1GC", "-Db=2") == "-XX:+UseG1GC -Db=2"
