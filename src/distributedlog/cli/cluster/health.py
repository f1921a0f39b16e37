"""`dlog cluster health`: what is wrong with a cluster, and what to do about it.

Exit code 0 if nothing is; 1 if something is.  What is wrong is found by `problems`; here it is shown.
"""

import click

from distributedlog.cli.cluster.info import ClusterFacts, gather_facts
from distributedlog.cli.cluster.min_isr import find_min_isr
from distributedlog.cli.cluster.problems import (
    Problem,
    Severity,
    find_broker_problems,
    find_internal_topic_problems,
    find_quorum_problems,
    find_topic_problems,
    in_order,
)
from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin

EXIT_UNWELL = 1


@click.command()
@click.option("--critical", "only_critical", is_flag=True, help="Warnings do not count, and are not shown.")
@cluster_options
@output_option
def health(only_critical: bool, bootstrap: str, timeout_seconds: float, output: str) -> int:
    """Say what is wrong, and what to do: partitions without a leader or with too few replicas in sync,
    brokers that do not answer, failed or full disks, controllers that are behind.  If anything is, the exit
    code is 1.

    \b
    dlog cluster health
    dlog cluster health --critical -o json
    """

    async def work(admin: Admin) -> int:
        facts = await gather_facts(admin)
        min_isr = await find_min_isr(admin, facts.topics)
        problems = in_order(  # what a broker lacks comes before what its partitions lack for it
            (
                *find_quorum_problems(facts.quorum),
                *find_broker_problems(facts.view, facts.topics, facts.directories, facts.fenced),
                *find_topic_problems(facts.topics, min_isr, facts.view.brokers.keys()),
                *find_internal_topic_problems(facts.view, facts.topics),
            )
        )
        if only_critical:
            problems = [each for each in problems if each.severity is Severity.CRITICAL]
        _show(facts, problems, output)
        return EXIT_UNWELL if problems else 0

    return run(bootstrap, timeout_seconds, work)


def _show(facts: ClusterFacts, problems: list[Problem], output: str) -> None:
    critical = sum(each.severity is Severity.CRITICAL for each in problems)
    if output == "json":
        for each in problems:
            print_json({"type": "problem", **each._asdict(), "severity": each.severity.value})
        print_json(
            {
                "type": "health",
                "state": "critical" if critical else "warning" if problems else "well",
                "critical": critical,
                "warnings": len(problems) - critical,
                "brokers": len(facts.view.brokers),
                "topics": len(facts.topics),
                "partitions": facts.partition_count,
            }
        )
        return
    for each in problems:
        print_line(f"{each.severity.value:<9} {each.subject}: {each.message}; {each.advice}")
    looked = (
        f"{len(facts.view.brokers)} brokers, {len(facts.topics)} topics, {facts.partition_count} partitions"
    )
    if problems:
        print_line(f"{critical} critical, {len(problems) - critical} warnings; {looked}")
    else:
        print_line(f"well: {looked}")
