"""The reference part of docs/configuration.md, made from the table of settings.

    python -m distributedlog.settings.reference docs/configuration.md

replaces what stands between the two marks in that file; a test sees that it was done.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from distributedlog.model.config import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    KIB,
    MIB,
    MINUTE_MS,
    SECOND_MS,
)
from distributedlog.settings.node_settings import SETTINGS
from distributedlog.settings.schema import KIND_WORDS, NUMBERS, Kind, Setting, spell

BEGIN: Final = "<!-- The reference begins: made from the table of settings, not by hand. -->"
END: Final = "<!-- The reference ends. -->"
_SIZES: Final = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_TIMES: Final = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))


def reference() -> str:
    return "\n".join([BEGIN, *_lines(), "", END])


def _lines() -> Iterator[str]:
    section = None
    for setting in SETTINGS.values():
        if setting.section != section:
            section = setting.section
            yield from ("", f"### {section}", "")
            yield "| setting | what it means | value | default |"
            yield "|---|---|---|---|"
        yield f"| `{setting.name}` | {_meaning(setting)} | {_values(setting)} | {_default(setting)} |"


def _meaning(setting: Setting) -> str:
    parts = [setting.documentation]
    if setting.topic_name is not None:
        parts.append(f"A topic's own: `{setting.topic_name}`.")
    if setting.synonyms:
        names = ", ".join(f"`{name}`" for name, _ in setting.synonyms)
        parts.append(f"Also in coarser units: {names}.")
    if setting.is_cluster_wide:
        parts.append("Of the whole cluster.")
    if setting.is_dynamic:
        parts.append("Can be changed while the cluster runs.")
    return " ".join(parts).replace("|", "\\|")


def _values(setting: Setting) -> str:
    if setting.choices:
        several = " (several with commas)" if setting.kind is Kind.LIST else ""
        return ", ".join(f"`{choice}`" for choice in setting.choices) + several
    if setting.kind not in NUMBERS:
        return KIND_WORDS[setting.kind]
    low, high = setting.bounds
    if low == INT64_MIN:
        return KIND_WORDS[setting.kind]
    if high in (INT32_MAX, INT64_MAX):
        return f"from {low}"
    return f"{low} to {high}"


def _default(setting: Setting) -> str:
    if setting.default_text:
        return setting.default_text
    text = spell(setting.default)
    if text is None:
        return "none"
    if setting.default == INT64_MAX:
        return "no bound"
    return f"`{text}`{_in_words(setting)}"


def _in_words(setting: Setting) -> str:
    """A large number in the unit that people think in."""
    units: Sequence[tuple[int, str]] = _TIMES if setting.name.endswith(".ms") else ()
    if "bytes" in setting.name:
        units = _SIZES
    if isinstance(setting.default, int) and not isinstance(setting.default, bool):
        for size, unit in units:
            if setting.default >= size and setting.default % size == 0:
                return f" ({setting.default // size} {unit})"
    return ""


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + reference() + after)


if __name__ == "__main__":
    main(sys.argv[1])
