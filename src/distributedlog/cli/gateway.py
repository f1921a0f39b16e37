"""`dlog gateway`: the log over gRPC, for programs that want no Kafka client."""

import asyncio
import json
import logging
import os

import click

from distributedlog.cli.session import bootstrap_option

LISTEN_DEFAULT = "127.0.0.1:9094"


@click.command()
@bootstrap_option(".")
@click.option(
    "--listen",
    default=LISTEN_DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="Where callers connect; port 0 for any free one.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Answer Prometheus here, at /metrics; /health/ready too.  Without it, nowhere.",
)
@click.option(
    "--insecure", is_flag=True, help="Listen on other addresses than loopback: nobody authenticates."
)
@click.option(
    "--ready-fd",
    type=click.IntRange(min=0),
    metavar="N",
    hidden=True,
    help="Write a ready report to descriptor N.",
)
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="Of stderr.",
)
def gateway(
    bootstrap: str, listen: str, metrics: str | None, insecure: bool, ready_fd: int | None, log_format: str
) -> int:
    """Serve dlog.v1.BrokerService over gRPC until Ctrl-C; see docs/gateway.md.

    It works against any cluster that speaks Kafka's protocol, and keeps nothing itself.

    \b
    dlog gateway                                             the cluster of dlog dev, on 127.0.0.1:9094
    dlog gateway -b broker1:9092,broker2:9092 --listen 127.0.0.1:7000
    """
    from distributedlog.client.addresses import Address, parse_bootstrap
    from distributedlog.settings.addresses import is_loopback, parse_endpoint

    endpoint = parse_endpoint("--listen", listen)
    shown_at = None if metrics is None else parse_endpoint("--metrics", metrics)
    for option, each in (("--listen", endpoint), ("--metrics", shown_at)):
        if each is not None and not insecure and not is_loopback(each.host):
            raise click.UsageError(
                f"{option} {each}: whoever reaches that address needs no password; "
                "add --insecure if that is meant"
            )
    brokers = parse_bootstrap(bootstrap)
    from distributedlog.broker.logging_setup import configure_logging
    from distributedlog.cli.gateway_metrics import GatewayCounters, shown
    from distributedlog.gateway.process import run_gateway

    configure_logging(node_id=0, log_format=log_format, log_level="info")
    logging.captureWarnings(True)

    async def serve() -> None:
        counters = GatewayCounters()
        async with shown(counters, shown_at) as bound:

            def on_ready(address: Address) -> None:
                report = {"pid": os.getpid(), "gateway": str(address)}
                if bound is not None:
                    report["metrics"] = str(bound)
                if ready_fd is not None:
                    with open(ready_fd, "w", encoding="utf-8") as pipe:
                        pipe.write(json.dumps(report) + "\n")

            await run_gateway(brokers, endpoint.host, endpoint.port, on_ready, metrics=counters)

    asyncio.run(serve())
    return 0
