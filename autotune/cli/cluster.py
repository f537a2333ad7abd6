"""`autotune cluster`: who is there to tune on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.cli import text
from autotune.cli.group import Group
from autotune.cli.options import ClusterOption, ImportOption, JsonOption, require_cluster
from autotune.report.text import percent

if TYPE_CHECKING:
    from autotune.fleet.member import Member


def status(cluster: ClusterOption = None, imports: ImportOption = None, as_json: JsonOption = False) -> None:
    """List the workers of a cluster: what they do, for which target, their versions, load and drift, and whether this
    autotune can work with them."""
    address = require_cluster(cluster)
    from autotune.fleet.engine import Fleet
    from autotune.fleet.identity import Identity
    from autotune.measure.extensions import load_extensions

    load_extensions(imports or ())
    with Fleet(address, Identity.here(imports or ())) as fleet:
        members = sorted(fleet.members, key=lambda member: member.name)
    if as_json:
        text.print_json({"scheduler": address, "workers": [_values(member) for member in members]})
        return
    if not members:
        print(f"{address} has no workers; start one by: autotune worker --cluster {address}")
        return
    table = text.table(
        "worker", "host", "CPU", "cores", "does", "autotune", "load", "done", "disturbed", "drift",
        right=("cores", "load", "done", "disturbed", "drift"), long=("does",), spare=("CPU", "cores", "autotune"),
    )  # fmt: skip
    for member in members:
        table.add_row(*_cells(member))
    text.print_table(table)
    for member in members:
        if member.problem:
            text.print_prose(f"{text.cell(member.name)} cannot be used: {text.cell(member.problem)}")


def _cells(member: Member) -> tuple[str, ...]:
    identity, state = member.identity, member.state
    does = [f"builds {identity.builders}"] if identity and identity.builders else []
    does += [f"runs {target.key}" for target in identity.targets] if identity else []
    drift = state.get("drift")
    return (
        text.cell(member.name),
        text.cell(identity.host) if identity else "-",
        text.cell(identity.cpu) if identity else "-",
        str(identity.cores) if identity else "-",
        text.cell(", ".join(does)) or "nothing",
        text.cell(f"{identity.versions.get('autotune', '')} {identity.code[:8]}") if identity else "-",
        f"{state.get('executing', 0)}+{state.get('ready', 0)}",
        str(state.get("done", "-")),
        str(state.get("disturbed", "-")),
        percent(drift) if isinstance(drift, float) else "-",
    )


def _values(member: Member) -> dict[str, object]:
    identity = member.identity
    return {
        "name": member.name,
        "address": member.address,
        "usable": not member.problem,
        "problem": member.problem or None,
        "host": identity.host if identity else None,
        "cpu": identity.cpu if identity else None,
        "cores": identity.cores if identity else None,
        "versions": dict(identity.versions) if identity else None,
        "code": identity.code if identity else None,
        "builders": identity.builders if identity else None,
        "targets": [{"key": target.key, "target": str(target)} for target in identity.targets] if identity else None,
        "state": {name: value for name, value in member.state.items() if value == value},  # NaN is no JSON
    }


CLUSTER = Group("Who is there to tune on.", {"status": status})
