import pytest

from distributedlog.model.errors import ConfigError
from distributedlog.pipelines.failures import Location
from distributedlog.pipelines.graph import DataflowGraph, FlowNode, type_changes

SHOP = DataflowGraph(
    flows=(
        FlowNode("c.d.raw", "c.d.raw"),
        FlowNode("parsed", "parsed", ("c.d.raw",)),
        FlowNode("c.d.orders", "c.d.orders", ("parsed",), Location("orders.py", 49), (("cents", "STRING"),)),
        FlowNode("c.d.minutes", "c.d.minutes", ("c.d.orders",)),
        FlowNode("to_minutes", "topic_minutes", ("c.d.minutes",)),
        FlowNode("to_dead", "dead", ("parsed",)),
        FlowNode("c.e.orders_by_day", "c.e.orders_by_day"),
    ),
    tables=("c.d.raw", "c.d.orders", "c.d.minutes", "c.e.orders_by_day"),
    views=("parsed",),
    sinks=("topic_minutes", "dead"),
)


def test_everything_that_reads_a_table_is_downstream_of_it_also_through_views() -> None:
    assert SHOP.downstream(["c.d.orders"]) == ("c.d.orders", "c.d.minutes", "topic_minutes")
    assert SHOP.downstream(["c.d.minutes"]) == ("c.d.minutes", "topic_minutes")
    assert SHOP.downstream(["c.e.orders_by_day"]) == ("c.e.orders_by_day",)
    everything = ("c.d.raw", "c.d.orders", "c.d.minutes", "topic_minutes", "dead")
    assert SHOP.downstream(["c.d.raw"]) == everything


def test_a_table_is_named_by_an_end_of_its_name() -> None:
    assert SHOP.table("orders") == "c.d.orders"
    assert SHOP.table("d.orders") == "c.d.orders"
    assert SHOP.table("c.d.orders") == "c.d.orders"
    twice = DataflowGraph((), ("c.d.orders", "c.e.orders"))
    with pytest.raises(ConfigError, match=r"any of c\.d\.orders, c\.e\.orders"):
        twice.table("orders")
    assert twice.table("e.orders") == "c.e.orders"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("oders", r"no table oders: did you mean orders\?"),
        ("zzz", "its tables are: raw, orders, minutes, orders_by_day"),
        ("parsed", "is a view"),
        ("dead", "is a sink"),
    ],
)
def test_what_is_no_table_is_refused_with_what_there_is(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SHOP.table(name)


def test_a_column_whose_type_changed_is_named_with_its_table_and_what_helps() -> None:
    (change,) = type_changes(
        SHOP, {"c.d.orders": {"cents": "BIGINT", "gone": "INT"}, "c.d.raw": {"x": "INT"}}
    )
    assert str(change) == (
        "table orders: column cents is BIGINT in the table, and STRING in its definition (orders.py:49); a"
        " table keeps the types of its columns: cast it, give it another name, or make the table anew with"
        " --full-refresh orders"
    )
    assert type_changes(SHOP, {"c.d.orders": {"cents": "STRING"}}) == ()
    assert type_changes(SHOP, {}) == ()
