"""Bootstrap lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.client.addresses import ADDRESSES_MAX, Address, parse_bootstrap
from distributedlog.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b:2, ", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[fe80::1%eth0]", [("fe80::1%eth0", 9092)]),
    ],
)
def test_a_list_is_read_in_its_order(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize(
    "text", ["", ",", "a:0", "a:65536", "a:b", "::1", "http://a:1", "a b", "[::1", ":9092"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_bootstrap(text)


def test_a_list_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most"):
        parse_bootstrap(",".join(f"h{number}" for number in range(ADDRESSES_MAX + 1)))


@given(st.sampled_from(["a.example", "127.0.0.1", "::1", "2001:db8::7"]), st.integers(1, 65535))
def test_an_address_is_read_as_it_is_printed(host: str, port: int) -> None:
    assert parse_bootstrap(str(Address(host, port))) == (Address(host, port),)
