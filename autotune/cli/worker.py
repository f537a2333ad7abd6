"""`autotune worker`: build and measure for whoever tunes on a cluster."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.loudness import note
from autotune.cli.options import ClusterOption, ImportOption, parse_size, require_cluster

if TYPE_CHECKING:
    from autotune.fleet.service import Service


def worker(
    cluster: ClusterOption = None,
    build: Annotated[bool, typer.Option("--build", help="Build kernels [default: build and run].")] = False,
    run: Annotated[bool, typer.Option("--run", help="Run kernels: verify and time them, one at a time.")] = False,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="TEXT", help="What to run code for; repeat [default: native]."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, metavar="N", help="Kernels built at a time [default: cores that running leaves, or all]."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What to be called [default: the address].")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="For each kernel.")] = 30.0,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Of each process [default: to run, half of all there is; to build, 2G]."
        ),
    ] = None,
    imports: ImportOption = None,
) -> None:
    """Build kernels and measure them for tuners on other machines, until Ctrl-C or SIGTERM.

    Kernels run in processes of their own, as in a tuner; the scheduler and all who can reach it must be trusted."""
    address = require_cluster(cluster)
    import asyncio

    from autotune.fleet.identity import Identity
    from autotune.fleet.service import Service
    from autotune.machine import allowed_cores
    from autotune.measure.extensions import load_extensions
    from autotune.target import Target

    load_extensions(imports or ())
    both = build == run
    targets = [Target.parse(text) for text in target or ["native"]] if run or both else []
    for one in targets:
        one.require_host()
    left = allowed_cores() - max((one.num_threads for one in targets), default=0)
    builders = (jobs or max(1, left)) if build or both else 0
    service = Service(
        Identity.here(imports or (), builders=builders, targets=targets),
        timeout=timeout,
        memory_bytes=parse_size(memory, "--memory"),
        imports=imports or (),
    )
    try:
        asyncio.run(_serve(service, address, name))
    finally:
        service.close()


async def _serve(service: Service, address: str, name: str | None) -> None:
    import asyncio

    from autotune.fleet.host import serve

    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def leave() -> None:
        note("leaving; what is under way goes to others")
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # the next one ends it at once

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave)
    identity = service.identity
    does = [f"builds {identity.builders} at a time"] if identity.builders else []
    does += [f"runs {target.key}" for target in identity.targets]

    def joined(at: str) -> None:
        print(f"joined {address} as {name or at}: {', '.join(does)}", file=sys.stderr, flush=True)

    await serve(
        service,
        address,
        name=name,
        joined=joined,
        lost=lambda: note(f"lost {address}; joining again when it is there"),
        stop=stop,
    )
