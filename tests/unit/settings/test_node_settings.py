"""Settings: where values come from, what is refused and how it is said, and that the table is whole."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.config import LogConfig
from distributedlog.model.errors import ConfigError
from distributedlog.settings.addresses import Endpoint, Listener, Voter
from distributedlog.settings.config_layers import find_without_effect
from distributedlog.settings.loading import load_settings
from distributedlog.settings.log_settings import LOG_SETTING_NAMES
from distributedlog.settings.node_settings import (
    SETTINGS,
    SYNONYMS,
    NodeSettings,
    Source,
)
from distributedlog.settings.reference import reference
from distributedlog.settings.schema import Kind, Setting
from tests.unit.controller.stage import Stage, config

CONFIGURATION = Path(__file__).parents[3] / "docs" / "configuration.md"


def of(**texts: str) -> NodeSettings:
    """Settings given on the command line; an underscore stands for a dot."""
    return load_settings(None, {name.replace("_", "."): text for name, text in texts.items()}, {})


def refusal(**texts: str) -> str:
    with pytest.raises(ConfigError) as refused:
        of(**texts)
    return str(refused.value)


def write(directory: Path, text: str) -> str:
    path = directory / "node.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- where values come from --------------------------------------------------------------------


def test_a_node_of_which_nothing_is_said_is_a_quorum_of_one_on_loopback() -> None:
    node = of()
    assert node.node_id == 1
    assert node.is_broker
    assert node.is_controller
    assert node.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert node.advertised_listeners == node.listeners
    assert node.control_listener == Endpoint("127.0.0.1", 9093)
    assert node.controller_quorum_voters == (Voter(1, "127.0.0.1", 9093),)
    assert node.log == LogConfig()
    assert node.sources == {}


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, '"num.partitions" = 1\n"node.id" = 1\n"fetch.max.bytes" = 2048\n')
    environment = {"DLOG_NODE_ID": "2", "DLOG_NUM_PARTITIONS": "2", "HOME": "/"}
    node = load_settings(path, {"num.partitions": "3"}, environment)
    assert (node.num_partitions, node.node_id, node.fetch_bytes_max) == (3, 2, 2048)
    assert node.sources == {
        "num.partitions": Source.COMMAND_LINE,
        "node.id": Source.ENVIRONMENT,
        "fetch.max.bytes": Source.FILE,
    }


@pytest.mark.parametrize(
    "text",
    [
        '"log.retention.ms" = 5000',
        "log.retention.ms = 5000",
        "[log]\nretention.ms = 5000",
        "[log.retention]\nms = 5000",
        '"log.retention.ms" = "5000"',
    ],
)
def test_a_file_may_quote_dotted_names_or_nest_them(tmp_path: Path, text: str) -> None:
    assert load_settings(write(tmp_path, text), {}, {}).log.retention_ms == 5000


def test_a_file_may_hold_lists_and_truth_values(tmp_path: Path) -> None:
    text = (
        'listeners = ["A://127.0.0.1:1", "B://127.0.0.1:2"]\n'
        "auto.create.topics.enable = false\n"
        "log.cleaner.min.cleanable.ratio = 0.25\n"
        'log.cleanup.policy = ["delete", "compact"]\n'
    )
    node = load_settings(write(tmp_path, text), {}, {})
    assert [listener.name for listener in node.listeners] == ["A", "B"]
    assert node.auto_create_topics is False
    assert node.log.min_cleanable_dirty_ratio == 0.25
    assert node.log.cleanup_policy == ("delete", "compact")


def test_what_the_node_sets_for_logs_is_what_topics_get_by_default() -> None:
    node = load_settings(None, dict.fromkeys(("log.roll.ms", "message.max.bytes"), "1"), {})
    assert node.log == LogConfig(segment_ms=1, max_message_bytes=1)


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_given_counts(texts: dict[str, str], retention_ms: int) -> None:
    assert load_settings(None, texts, {}).log.retention_ms == retention_ms


def test_a_coarse_unit_on_the_command_line_wins_over_a_fine_one_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "log.retention.ms = 5")
    assert load_settings(path, {"log.retention.hours": "1"}, {}).log.retention_ms == 3_600_000


def test_a_voter_listens_where_the_voters_are_said_to_be() -> None:
    voters = "1@127.0.0.1:9193,2@127.0.0.1:9293"
    node = load_settings(None, {"node.id": "2", "controller.quorum.voters": voters}, {})
    assert node.control_listener == Endpoint("127.0.0.1", 9293)
    assert node.controller_quorum_voters == (Voter(1, "127.0.0.1", 9193), Voter(2, "127.0.0.1", 9293))


def test_listeners_can_be_turned_off_and_have_any_free_port() -> None:
    node = of(ops_listener="none", control_listener="127.0.0.1:0", listeners="PLAINTEXT://[::1]:0")
    assert node.ops_listener is None
    assert node.control_listener == Endpoint("127.0.0.1", 0)
    assert str(node.listeners[0]) == "PLAINTEXT://[::1]:0"
    assert node.spelled("ops.listener") == "none"


# --- what is refused ---------------------------------------------------------------------------


def test_a_setting_of_the_whole_cluster_is_refused_where_a_node_is_no_controller(tmp_path: Path) -> None:
    broker = {"node.id": "2", "process.roles": "broker", "controller.quorum.voters": "1@127.0.0.1:9093"}
    path = write(tmp_path, '"min.insync.replicas" = 2')
    for texts, variables, file in (
        ({"unclean.leader.election.enable": "true"}, {}, None),
        ({}, {"DLOG_NUM_PARTITIONS": "3"}, None),
        ({}, {}, path),
    ):
        with pytest.raises(ConfigError, match="of the whole cluster, and node 2 is no controller"):
            load_settings(file, broker | texts, variables)
    assert load_settings(None, broker, {}).min_insync_replicas == 1
    assert load_settings(path, {}, {}).cluster_settings["min.insync.replicas"] == "2"


def test_what_a_controller_was_given_and_the_cluster_has_otherwise_is_said() -> None:
    image = Stage(config(min_insync_replicas=2, num_partitions=3)).image
    node = load_settings(None, {"min.insync.replicas": "1", "num.partitions": "3"}, {})
    (warning,) = find_without_effect(node, image)
    assert warning.startswith("min.insync.replicas=1 (--set) has no effect: the whole cluster has 2")


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set: there is no setting 'num\.partition'.*'num\.partitions'"):
        load_settings(None, {"num.partition": "3"}, {})
    path = write(tmp_path, "log.retentoin.ms = 5")
    with pytest.raises(ConfigError, match=r"node\.toml.*did you mean 'log\.retention\.ms'"):
        load_settings(path, {}, {})
    with pytest.raises(ConfigError, match="DLOG_NODE_IDS; did you mean DLOG_NODE_ID"):
        load_settings(None, {}, {"DLOG_NODE_IDS": "3"})
    with pytest.raises(ConfigError, match=r"docs/configuration\.md"):
        load_settings(None, {"zookeeper": "3"}, {})


def test_a_variable_that_is_like_no_setting_belongs_to_someone_else() -> None:
    assert (
        load_settings(None, {}, {"DLOG_DEBUG": "1", "DLOG_KERNEL": "interpreted", "DLOG_SOAK": "1"}) == of()
    )


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("node.id", "-1", "node.id is -1; it must lie between 0 and 2147483647"),
        ("node.id", "one", "node.id cannot be 'one': it is a whole number"),
        ("node.id", "1_000", "whole number"),
        ("node.id", "9" * 40, "whole number"),
        ("num.partitions", "0", "between 1 and"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleaner.min.cleanable.ratio", "2.5", "between 0.0 and 1.0"),
        ("log.cleaner.min.cleanable.ratio", "nan", "a number"),
        ("log.cleanup.policy", "shred", "delete, compact"),
        ("log.cleanup.policy", "delete,", "empty"),
        ("log.retention.hours", "9999999999999999", "must lie between"),
        ("log.format", "xml", "console, json"),
        ("process.roles", "broker,king", "broker, controller"),
        ("process.roles", "", "broker, controller"),
        ("listeners", "127.0.0.1:9092", "NAME://HOST:PORT"),
        ("listeners", "", "empty"),
        ("listeners", "PLAINTEXT://:9092", "HOST:PORT"),
        ("listeners", "PLAINTEXT://broker..example:9092", "HOST:PORT"),
        ("advertised.listeners", f"PLAINTEXT://{'b' * 64}.example:9092", "HOST:PORT"),
        ("listeners", "PLAINTEXT://127.0.0.1:99999", "between 0 and 65535"),
        ("listeners", "SSL://127.0.0.1:9092", "no SSL here yet"),
        ("listeners", "A://127.0.0.1:1,A://127.0.0.1:2", "name of its own"),
        ("listeners", "A://127.0.0.1:1,B://127.0.0.1:1", "same address"),
        ("listeners", ",".join(f"A{n}://127.0.0.1:{n}" for n in range(101)), "at most 100"),
        ("control.listener", "none", "HOST:PORT"),
        ("controller.quorum.voters", "127.0.0.1:9093", "ID@HOST:PORT"),
        ("controller.quorum.voters", "1@127.0.0.1:1,1@127.0.0.1:2", "named twice"),
        ("process.roles", "broker", "must know who is"),
        ("advertised.listeners", "OTHER://h:1", "which listeners has not"),
        ("log.dirs", "a,b", "one directory"),
        ("log.dirs", "", "one directory"),
        ("cluster.id", "x" * 101, "at most 100"),
        ("broker.rack", "x" * 40_000, "at most 32000"),
        ("controller.quorum.heartbeat.interval.ms", "600", "two must fit"),
        ("broker.heartbeat.interval.ms", "5000", "two must fit"),
        ("queued.bytes.max", "2048", "queued.bytes.per.connection.max is over"),
    ],
)
def test_an_impossible_value_is_refused_and_the_message_says_why(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(None, {name: text}, {})
    assert says in str(refused.value)
    assert name in str(refused.value) or name == "process.roles"


def test_a_voter_must_have_the_role_of_one() -> None:
    assert "lack 'controller'" in refusal(
        process_roles="broker", controller_quorum_voters="1@127.0.0.1:1,2@127.0.0.1:2"
    )


@pytest.mark.parametrize("name", ["listeners", "control.listener", "ops.listener"])
@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "broker.example", "[::]"])
def test_an_address_that_others_can_reach_is_refused_on_every_plane(name: str, host: str) -> None:
    prefix = "PLAINTEXT://" if name == "listeners" else ""
    texts = {name: f"{prefix}{host}:1234", "advertised.listeners": "PLAINTEXT://broker.example:1234"}
    with pytest.raises(ConfigError, match=rf"{name} is .*--insecure"):
        load_settings(None, texts, {})
    assert load_settings(None, texts | {"insecure": "true"}, {}).insecure


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_every_loopback_address_is_allowed(host: str) -> None:
    assert of(control_listener=f"{host}:1").control_listener.port == 1


def test_clients_are_not_sent_to_an_address_that_means_any() -> None:
    assert "advertised.listeners" in refusal(listeners="PLAINTEXT://0.0.0.0:1", insecure="true")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listeners = PLAINTEXT://x", "is not TOML"),
        ('"node.id" = 1\nnode.id = 2', "set twice"),
        ("max.connections = 5\nmax.connections.per.ip = 3", "max.connections.per.ip"),
        ("node.id = 2020-01-01", "cannot be a date"),
        ("node.id = [[1]]", "cannot be a list"),
        ("node.id = true", "whole number"),
        ("# " + "x" * 1_100_000, "no settings file"),
        ("a = " + "[" * 50_000, "is not TOML"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(write(tmp_path, text), {}, {})
    assert says in str(refused.value)


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("binary", "absent", "."):
        with pytest.raises(ConfigError, match=name):
            load_settings(str(tmp_path / name), {}, {})


# --- the table ---------------------------------------------------------------------------------


def test_every_field_is_a_setting_and_every_log_setting_has_a_default_here() -> None:
    own = {setting.field for setting in SETTINGS.values() if not setting.is_log}
    assert own == {field.name for field in fields(NodeSettings)} - NodeSettings.DERIVED
    assert set(LOG_SETTING_NAMES) == set(LogConfig.by_name)
    assert not SYNONYMS.keys() & SETTINGS.keys()


def test_names_in_the_environment_are_different_from_each_other() -> None:
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_value_in_force_is_spelled_so_that_it_is_read_back(setting: Setting) -> None:
    node = of()
    text = node.spelled(setting.name)
    assert setting.documentation.endswith((".", "both."))
    if text is not None:
        assert load_settings(None, {setting.name: text}, {}) == node


@given(
    st.sampled_from([setting for setting in SETTINGS.values() if setting.kind in (Kind.INT, Kind.LONG)]),
    st.integers(-(2**70), 2**70),
)
@settings(max_examples=100, deadline=None)
def test_a_number_is_taken_exactly_if_it_lies_within_its_bounds(setting: Setting, number: int) -> None:
    low, high = setting.bounds
    if low <= number <= high:
        assert setting.read(str(number)) == number
    else:
        with pytest.raises(ConfigError, match=setting.name.replace(".", r"\.")):
            setting.read(str(number))


@given(st.sampled_from(list(SETTINGS)), st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_is_either_taken_or_refused_in_one_line(name: str, text: str) -> None:
    outcome = ""
    try:
        load_settings(None, {name: text}, {})
    except ConfigError as refused:
        outcome = str(refused)
    assert "\n" not in outcome


def test_a_controller_that_the_voters_do_not_name_is_a_standby_which_others_must_reach() -> None:
    given = {"node.id": "2", "controller.quorum.voters": "1@127.0.0.1:9093"}
    assert load_settings(None, given, {}).is_standby
    assert not load_settings(None, {**given, "node.id": "1"}, {}).is_standby
    assert not load_settings(None, {**given, "process.roles": "broker"}, {}).is_standby
    anywhere = {**given, "insecure": "true", "control.listener": "0.0.0.0:9093"}
    with pytest.raises(ConfigError, match=r"control\.listener cannot be 0\.0\.0\.0"):
        load_settings(None, anywhere, {})


def test_the_reference_in_the_documentation_is_that_of_the_table() -> None:
    """Made again with `python -m distributedlog.settings.reference docs/configuration.md`."""
    assert reference() in CONFIGURATION.read_text(encoding="utf-8")
