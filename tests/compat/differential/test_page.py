"""The page that users read says what the list says."""

from tests.compat.differential.intended import INTENDED
from tests.compat.differential.page import PATH, page_of


def test_the_page_is_made_from_the_list() -> None:
    made = page_of(INTENDED)
    assert PATH.read_text(encoding="utf-8") == made, "run python -m tests.compat.differential.page"


def test_every_reason_is_a_sentence_and_stands_once() -> None:
    reasons = [entry.reason for entry in INTENDED]
    assert len(set(reasons)) == len(reasons)
    assert all(reason.endswith(".") for reason in reasons)
