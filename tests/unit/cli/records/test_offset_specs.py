"""`--from` and `--to`."""

import click
import pytest

from distributedlog.cli.records.offset_specs import OffsetSpecType
from distributedlog.client.offset_specs import BEGINNING, END, AtOffset, AtTime, LastRecords, OffsetSpec

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("0", AtOffset(0)),
        ("1700000000000", AtOffset(1_700_000_000_000)),
        ("-10", LastRecords(10)),
        ("-10m", AtTime(NOW_MS - 600_000)),
        ("-1d", AtTime(NOW_MS - 86_400_000)),
        ("2023-11-14T22:13:20", AtTime(NOW_MS)),
        ("@1700000000000", AtTime(NOW_MS)),
    ],
)
def test_a_place_may_be_written_in_many_ways(text: str, place: OffsetSpec) -> None:
    assert OffsetSpecType(NOW_MS).convert(text, None, None) == place


@pytest.mark.parametrize("text", ["", "middle", "10m", "--5", "9" * 19, "@", "-", "2023-13-01"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no place: .*-10m"):
        OffsetSpecType(NOW_MS).convert(text, None, None)
