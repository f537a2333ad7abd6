"""`autotune db`: look into a tuning database, move records, and keep it in order."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import text
from autotune.cli.asked_target import AskedTarget
from autotune.cli.db_diff import diff
from autotune.cli.db_sessions import sessions
from autotune.cli.group import Group
from autotune.cli.options import DbOption, JsonOption, LayerOption, database_path, opened
from autotune.errors import DatabaseError
from autotune.report.text import counted, duration, percent

if TYPE_CHECKING:
    from autotune.records import Database, MergeReport, TuningRecord

WorkloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD", help='The start of a workload key, or an operator: "matmul a=128,768 b=768,3072".'
    ),
]


def list_workloads(db: DbOption = None, layer: LayerOption = None, as_json: JsonOption = False) -> None:
    """List what has been tuned: one line per workload and target."""
    with opened(db, layer) as database:
        summaries = database.workloads()
    if as_json:
        text.print_json([dataclasses.asdict(summary) for summary in summaries])
        return
    table = text.table(
        "workload", "trials", "failed", "best", "operator", "target", *(["from"] if layer else []),
        right=("trials", "failed", "best"), long=("operator",), spare=("target", "failed", "trials"),
    )  # fmt: skip
    for one in summaries:
        table.add_row(
            one.workload_key,
            str(one.trials),
            str(one.failed),
            duration(one.best_seconds),
            text.cell(one.description),
            one.target_key,
            *([text.cell(one.origin)] if layer else []),
        )
    text.print_table(table)


def show(
    workload: WorkloadArgument,
    db: DbOption = None,
    layer: LayerOption = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the fastest to show.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show the trials of a workload: the fastest verified ones, and why others failed."""
    with opened(db, layer) as database:
        key = _workload_key(database, workload)
        trials = list(database.trials(key))
        if not trials:  # of a layer, which has told why
            raise DatabaseError(f"none of the trials of {key} can be read; `autotune db verify --layer` says why")
        fastest = sorted((trial for trial in trials if trial.verified), key=lambda trial: trial.seconds or 0.0)[:top]
        origins = [database.origin(trial) for trial in fastest]
    failures: dict[str, int] = {}
    for trial in trials:
        if trial.failure_kind is not None:
            failures[trial.failure_kind] = failures.get(trial.failure_kind, 0) + 1
    if as_json:
        found = {"workload": key, "trials": len(trials), "failures": failures}
        text.print_json({**found, "fastest": [_values(*one) for one in zip(fastest, origins)]})
        return
    print(f"{key}  {text.cell(trials[0].description)}")
    causes = "".join(f", {count} {kind}" for kind, count in sorted(failures.items()))
    print(f"{counted(len(trials), 'trial')}, {sum(trial.verified for trial in trials)} verified{causes}\n")
    table = text.table(
        "time", "spread", "error", "allowed", "measured", "template", "config", "target",
        *(["from"] if layer else []),
        right=("time", "spread", "error", "allowed"), long=("config",),
        spare=("target", "allowed", "spread", "measured", "error"),
    )  # fmt: skip
    for trial, origin in zip(fastest, origins):
        table.add_row(
            duration(trial.seconds),
            percent(trial.spread),
            "-" if trial.max_abs_err is None else f"{trial.max_abs_err:.2g}",
            "-" if trial.tolerance is None else f"{trial.tolerance:.2g}",
            text.date(trial.created),
            text.cell(trial.template),
            text.cell(_knobs(trial.config)),
            trial.target_key,
            *([text.cell(origin)] if layer else []),
        )
    text.print_table(table)


def best(
    workload: WorkloadArgument,
    db: DbOption = None,
    layer: LayerOption = None,
    *,
    asked: AskedTarget,
    residency: Annotated[str | None, typer.Option(help="Where the weights will be: L2, L3 or DRAM.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the best record of a workload for a target, and how well it fits."""
    from autotune import records

    wanted = asked.parsed_target()
    if residency not in (None, "L2", "L3", "DRAM"):
        raise DatabaseError(f"--residency {residency}: weights are in L2, L3 or DRAM; name one of them")
    with opened(db, layer) as database:
        key = _workload_key(database, workload)
        match = database.best(key, wanted.key, wanted.to_json(), residency=residency)
        origin = "" if match.record is None else database.origin(match.record)
    if as_json:
        record = None if match.record is None else _values(match.record, origin)
        text.print_json({"workload": key, "tier": match.tier.value, "reason": match.reason, "record": record})
        return
    text.print_prose(f"{match.tier.value}: {match.reason}")
    if match.record is not None:
        record = match.record
        own = record.interface == records.TEMPLATE_INTERFACE
        text.print_table(
            text.facts(
                ("operator", text.cell(record.description)),
                ("time", duration(record.seconds)),
                ("target", record.target_key),
                ("weights in", record.residency or "-"),
                ("layouts", "as its template chooses" if own else text.cell(record.interface)),
                ("config", text.cell(record.config)),
                ("measured", text.date(record.created)),
                ("from", text.cell(origin)),
            )
        )


def export_file(
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="A file, - for standard output, or a folder or URL, which gets what it does not have."
        ),
    ],
    db: DbOption = None,
    layer: LayerOption = None,
) -> None:
    """Write all records as JSON lines, with layers theirs too; rows that cannot be read are left out and named."""
    from autotune import records
    from autotune.api.locate import layer_at

    damaged: list[str] = []
    with opened(db, layer) as database:
        if out == "-":
            for line in records.export_lines(database, damaged):
                print(line)
        elif "://" in out or out.endswith("/") or Path(out).is_dir():
            count = layer_at(out).add(database, damaged)
            print(f"{count} records, new there, written to a segment in {out}" if count else f"{out} has all of them")
        else:
            count = records.export_records(database, out, damaged)
            print(f"{counted(count, 'record')} written to {out}")
        path = database.path
    for line in damaged:
        print(line, file=sys.stderr)
    if damaged:
        raise DatabaseError(f"{path}: the damaged rows named above were left out, all others are in {out}")


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `autotune db export` wrote.")],
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add records from a file of JSON lines; the newer of two trials of the same config stays."""
    from autotune import records

    path = database_path(db)
    if not path.exists():  # what is refused makes no database
        for _ in records.read_items(file):
            pass
    with records.Database.open(path, make_parents=db is None) as database:
        _report(records.import_records(database, file), as_json)


def merge(
    others: Annotated[list[Path], typer.Argument(metavar="OTHER...", help="Databases to add; they are not changed.")],
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add the records of other databases; the newer of two trials of the same config stays."""
    from autotune import records

    total = records.MergeReport(0, 0, 0)
    path = database_path(db)
    if not path.exists():  # what is refused makes no database
        for other in others:
            records.Database.open(other, read_only=True).close()
    with records.Database.open(path, make_parents=db is None) as database:
        for other in others:
            with records.Database.open(other, read_only=True) as source:
                one = records.merge_database(database, source)
            total = records.MergeReport(total.added + one.added, total.replaced + one.replaced, total.kept + one.kept)
    _report(total, as_json)


def prune(
    keep: Annotated[int, typer.Option(min=1, help="Fastest verified trials to keep of each task.")] = 10,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete all but the fastest verified trials of each task, and shrink the file."""
    from autotune import records

    with records.Database.open(_existing(db)) as database:
        before = records.stats(database).size_bytes
        deleted = records.prune(database, keep)
        after = records.stats(database)
    if as_json:
        text.print_json(
            {"deleted": deleted, "kept": after.trials, "bytes_before": before, "bytes_after": after.size_bytes}
        )
    else:
        text.print_prose(
            f"{counted(deleted, 'trial')} deleted, {after.trials} kept; "
            f"{text.size(before)} before, {text.size(after.size_bytes)} now"
        )


def verify(db: DbOption = None, layer: LayerOption = None, as_json: JsonOption = False) -> None:
    """Check that the file is whole and that every row can be read; of layers, that their segments are."""
    from autotune import records
    from autotune.api.locate import layer_at

    path, problems, trials = database_path(db), [], 0
    if path.exists() or not layer:
        with records.Database.open(path, read_only=True) as database:
            problems += records.verify(database)
            trials += 0 if problems else records.stats(database).trials
    own = bool(problems)
    for location in layer or ():
        below = layer_at(location).open(problems.append)
        if below is not None:
            with below:
                below.read_all()
                found_there = records.verify(below)
                trials += 0 if found_there else records.stats(below).trials
            problems += [f"layer {location}: {problem}" for problem in found_there]
    found = {"database": str(path), "layers": list(layer or ()), "problems": problems}
    if problems:
        if not as_json:
            print("\n".join(problems))
        advice = "all in layers: restore or leave out those"
        if own:
            advice = "`autotune db export` saves what can still be read"
        raise DatabaseError(f"{path}: {counted(len(problems), 'problem')}; {advice}", values=found)
    if as_json:
        text.print_json(found)
    else:
        print(f"{path}: all {trials} trials are sound")


def repair(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The damaged database; it is not changed.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="NEW", help="The file to write; a new one.")],
    as_json: JsonOption = False,
) -> None:
    """Save what can be read of a damaged database in a new file, and say how much was lost."""
    from autotune import records

    found = records.repair(file, out)
    if as_json:
        text.print_json(dataclasses.asdict(found))
        return
    for what in ("trials", "sessions", "plans"):
        lost = getattr(found, f"lost_{what}")
        print(f"{getattr(found, what)} {what} saved in {out}, {lost} lost")
    for cause in found.causes:
        print(cause)


def stats(db: DbOption = None, layer: LayerOption = None, as_json: JsonOption = False) -> None:
    """Count what is in the database: trials, failures by kind, sessions by state."""
    from autotune import records

    with opened(db, layer) as database:
        parts = database.layers if isinstance(database, records.LayeredDatabase) else (database,)
        found, *layers = [records.stats(part) for part in parts]
    if as_json:
        below = {"layers": [dataclasses.asdict(one) for one in layers]} if layer else {}
        text.print_json({**dataclasses.asdict(found), **below})
        return
    rows = (
        ("database", f"{found.path} ({text.size(found.size_bytes)}, schema {found.schema})"),
        ("workloads", str(found.workloads)),
        ("targets", str(found.targets)),
        ("trials", str(found.trials)),
        ("verified", str(found.verified)),
        ("unverified", str(found.unverified)),
        *((f"failed: {kind}", str(count)) for kind, count in found.failures.items()),
        *((f"sessions {state}", str(count)) for state, count in found.sessions.items()),
        ("from", text.date(found.oldest)),
        ("to", text.date(found.newest)),
        *(
            (f"layer {part.name}", f"{one.trials} trials of {one.workloads} workloads, up to {text.date(one.newest)}")
            for part, one in zip(parts[1:], layers)
        ),
    )
    text.print_table(text.facts(*rows))


def upgrade(db: DbOption = None, as_json: JsonOption = False) -> None:
    """Bring the file of an older autotune to this version's schema."""
    from autotune import records

    with records.Database.open(_existing(db)) as database:
        found = {"path": str(database.path), "schema": database.connection.schema}
    if as_json:
        text.print_json(found)
    else:
        print(f"{found['path']}: schema {found['schema']}")


def _knobs(config: str) -> str:
    """A config without its template, one knob after the other; as it is where it is not one."""
    try:
        found = json.loads(config)
    except ValueError:
        return config
    if not isinstance(found, dict):
        return config
    return " ".join(f"{name}={json.dumps(value)}" for name, value in found.items() if name != "template")


def _existing(db: Path | None) -> Path:
    """A database to change, not to create."""
    path = database_path(db)
    if not path.exists():
        raise DatabaseError(f"{path} does not exist; `autotune tune` creates it")
    return path


def _workload_key(database: Database, given: str) -> str:
    """The one workload of the database that `given` describes, or whose key starts with it."""
    start = given
    if " " in given:
        from autotune.ops.parse import parse_workload

        start = parse_workload(given).key
    keys = database.workload_keys(start)
    if not keys:
        raise DatabaseError(f"{database.path} has no workload {given!r}; `autotune db list` shows all")
    if len(keys) > 1:
        raise DatabaseError(f"{given!r} is the start of {len(keys)} workload keys, such as {keys[0]} and {keys[1]}")
    return keys[0]


def _report(report: MergeReport, as_json: bool) -> None:
    if as_json:
        text.print_json(dataclasses.asdict(report))
    else:
        text.print_prose(
            f"{counted(report.added, 'trial')} added, {report.replaced} replaced by newer ones, "
            f"{report.kept} were there already"
        )


def _values(record: TuningRecord, origin: str) -> Any:
    return {**json.loads(record.to_json()), "origin": origin}


DB = Group(
    "Look into a tuning database, move records, and keep it in order.",
    {
        "list": list_workloads,
        "show": show,
        "best": best,
        "sessions": sessions,
        "diff": diff,
        "export": export_file,
        "import": import_file,
        "merge": merge,
        "prune": prune,
        "verify": verify,
        "repair": repair,
        "stats": stats,
        "upgrade": upgrade,
    },
)
