"""All claims of the project in one run, one benchmark after the other, and one list of what holds and what does not.

    python -m benchmarks.closing -o figures --db tuning.sqlite --tune 5m

Wants a quiet machine; --quick shows in a few minutes that everything works.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from autotune import machine
from benchmarks.models import MODELS
from benchmarks.report import ROOT, Claim, format_table, progress


def commands(quick: bool, database: Path | None, budget: str | None, others: str) -> dict[str, list[str]]:
    """The arguments of every benchmark, by the name of its figures; tuning first, since others use its records."""
    fast = ["--quick"] if quick else []
    records = ["--db", str(database.resolve())] if database is not None else []
    first, *rest = ("squeezenet",) if quick else MODELS
    found: dict[str, list[str]] = {}
    for name, models, tune in (("models", [first], budget), ("models-others", rest, budget and others)):
        if models:
            found[name] = ["models", *models, *fast, *records, *(["--tune", tune] if tune else [])]
    found |= {
        "language": ["language", *fast, *([] if quick else ["--tuned", "64"])],
        "convolutions": ["convolutions", *fast],
        "trials": ["trials", *fast],
        "trials-model": ["trials", *fast, "--model", first, "--budget", budget or others],
        "startup": ["startup", first, *fast, *records],
        "memory": ["memory", *([first] if quick else []), *fast, *records],
        "kill-operator": ["kill", *fast],
        "kill-model": ["kill", *fast, "--model", first],
        "fuzz": ["fuzz", *fast],
    }
    return found


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks.closing", description=(__doc__ or "").splitlines()[0])
    options.add_argument("-o", "--output", type=Path, required=True, help="folder for the JSON files")
    options.add_argument("--quick", action="store_true", help="short runs, to see that everything works")
    options.add_argument("--db", type=Path, help="a tuning database for models, start-up and memory")
    options.add_argument("--tune", metavar="BUDGET", help="first tune resnet50 into --db for so long, as 5m")
    options.add_argument("--tune-others", metavar="BUDGET", default="1m", help="and the other models (default: 1m)")
    options.add_argument("--only", action="append", help="one of them; may be repeated")
    given = options.parse_args(arguments)
    chosen = commands(given.quick, given.db, given.tune, given.tune_others)
    unknown = set(given.only or ()) - chosen.keys()
    if unknown:
        options.error(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(chosen)}")
    if given.tune and given.db is None:
        options.error("--tune needs --db FILE to put the records in")
    if not given.tune and given.db is not None and not given.db.exists():
        options.error(f"there is no database '{given.db}'")
    given.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str | int | float | bool | None]] = []
    broken = 0
    for name, words in chosen.items():
        if given.only and name not in given.only:
            continue
        path = given.output / f"{name}.json"
        path.unlink(missing_ok=True)
        progress(f"--- {name}: python -m benchmarks.{' '.join(words)}")
        start = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:], "--json", str(path.resolve())]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        claims = [_claim(entry) for entry in json.loads(path.read_text())["claims"]] if path.exists() else []
        broken += code != 0
        rows.append(
            {
                "benchmark": name, "exit code": code, "minutes": (time.monotonic() - start) / 60,
                "claims": len(claims), "hold": sum(c.holds is True for c in claims),
                "missed": sum(c.holds is False for c in claims), "no figure": sum(c.holds is None for c in claims),
            }
        )  # fmt: skip
        for claim in claims:
            if claim.holds is not True:
                progress(str(claim))
    print(f"\n{machine.model_name()}, {machine.allowed_cores()} cores\n{format_table(rows)}")
    return 1 if broken else 0


def _claim(entry: dict[str, object]) -> Claim:
    return Claim(**{name: value for name, value in entry.items() if name != "holds"})  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
