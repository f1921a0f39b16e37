"""`python -m tests.compat.differential`: asks both brokers everything and says what differs."""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench.broker_kafka import KAFKA_VERSION, LeftOutError, fetch_kafka
from tests.compat.differential.compare import Difference, Intended, Verdict, judge
from tests.compat.differential.intended import INTENDED
from tests.compat.differential.registry import Probe, all_probes
from tests.compat.differential.running import Outcome, both_brokers, run_probes

VALUE_CHARACTERS_MAX = 300


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.differential", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="probes whose title contains this, as in Fetch/sessions; may be given several times",
    )
    parser.add_argument("--show-intended", action="store_true", help="print the intended differences too")
    options = parser.parse_args(arguments)
    try:
        fetch_kafka()
    except LeftOutError as reason:
        print(f"Kafka {KAFKA_VERSION} cannot be had, and nothing was tried: {reason}", file=sys.stderr)
        return 1
    probes = list(wanted(all_probes(), options.only))
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as directory,
        both_brokers(Path(directory)) as both,
    ):
        outcome = run_probes(both, probes)
    verdict = judge(outcome.differences, INTENDED)
    if options.only:
        verdict, outcome = verdict._replace(unused=[]), outcome._replace(not_asked=[])
    if options.show_intended:
        for line in lines_of(difference for difference, _ in verdict.intended):
            print(line)
    for line in lines_of(verdict.unexpected):
        print(line)
    for line in summary(outcome, verdict):
        print(line)
    return 0 if verdict.is_good and not outcome.not_asked else 1


def wanted(probes: Iterable[Probe], texts: Sequence[str]) -> Iterable[Probe]:
    """All, or those whose title contains one of the texts."""
    return (each for each in probes if not texts or any(text.lower() in each.title.lower() for text in texts))


def lines_of(differences: Iterable[Difference]) -> Iterable[str]:
    """Those that are the same in several versions, once."""
    versions: dict[tuple[str, str, str, str], list[int]] = {}
    for (name, version), path, kafka, ours in differences:
        path = path.replace(f"-v{version}-", "-v*-")
        shown = (_shown(value).replace(f"-v{version}-", "-v*-") for value in (kafka, ours))
        versions.setdefault((name, path, *shown), []).append(version)  # type: ignore[arg-type]
    for (name, path, kafka, ours), met in versions.items():
        yield f"{name} (v {', '.join(map(str, met))})"
        yield f"    {path}"
        yield f"        Kafka: {kafka}"
        yield f"        ours:  {ours}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


def summary(outcome: Outcome, verdict: Verdict) -> Iterable[str]:
    for missing in outcome.not_asked:
        yield f"nobody asked for {missing}"
    for entry, match in verdict.unused:
        yield f"on the list, but met nowhere: {match} ({_head(entry)})"
    reasons = len({entry.reason for _, entry in verdict.intended})
    yield (
        f"Kafka {KAFKA_VERSION} and this broker, {outcome.apis} APIs in {outcome.versions} versions: "
        f"{outcome.probes} probes asked {outcome.questions} questions; {outcome.equal} answers are equal, "
        f"{len(verdict.intended)} differences are intended (for {reasons} reasons), "
        f"{len(verdict.unexpected)} are unexpected, {len(verdict.unused)} entries of the list are unused"
    )


def _head(entry: Intended) -> str:
    return entry.reason.split(". ")[0]


if __name__ == "__main__":
    sys.exit(main())
