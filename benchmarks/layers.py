"""A layer of a million trials: is it quickly opened, asked and counted, with an index and without, here and over HTTP?

python -m benchmarks.layers                                1 million trials of 20,000 tasks
python -m benchmarks.layers --served                       over `python -m http.server`, too (needs fsspec and aiohttp)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from autotune.records import Layer, stats
from autotune.records.segment_index import SUFFIX as INDEX
from autotune.records.segment_index import write_index
from autotune.records.segment_scan import scan
from autotune.records.store import SUFFIX, sha256
from autotune.target import Target
from benchmarks.database import OPERATORS, drawn
from benchmarks.report import Report, parser, progress

OPEN_S = 2.0
METHOD = (
    "Trials of a few operators are drawn as for the benchmark `database`, written as lines of JSON as `autotune db "
    "export` writes them, and copied for as many workloads as are wanted, with other keys and times: one segment. Each "
    "opening is of a process of its own, imports not counted, with an empty cache but for the second one; "
    "memory is the process's in the end, less what it had before it opened. No index: as older versions wrote it. "
    "Served: by `python -m http.server` on this machine, which gives files as a whole only."
)
_FIELDS = re.compile(r'"(workload_key|config_key|family_key|seconds)":("[^"]*"|[^,}]*)')


def write_segment(folder: Path, tasks: int, trials: int, target: Target, rng: random.Random) -> list[str]:
    """One segment with its index; the keys of its workloads."""
    templates = [
        _FIELDS.split(f'{{"trial":{record.to_json()}}}\n')
        for text in OPERATORS
        for record in drawn(text, min(trials, 50), target, rng)
    ]
    each = len(templates) // len(OPERATORS)
    keys = [f"{rng.getrandbits(64):016x}" for _ in range(tasks)]
    path = folder / "segment"
    with path.open("w", encoding="ascii") as out:
        out.write('{"format":"autotune-records","version":3}\n')
        for number, key in enumerate(keys):
            family, first = f"{rng.getrandbits(64):016x}", number % len(OPERATORS) * each
            if number % 1000 == 0:
                progress(f"writing task {number} of {tasks}")
            for trial in range(trials):
                out.write(_changed(templates[first + trial % each], key, family, rng))
    progress("indexing")
    found = scan(path, lambda done: None)
    write_index(found.blocks, path.stat().st_size, folder / "index")
    (folder / "index").rename(folder / f"{found.sha256}.{sha256(folder / 'index')}{INDEX}")
    path.rename(folder / f"{found.sha256}{SUFFIX}")
    return keys


def _changed(parts: list[str], workload: str, family: str, rng: random.Random) -> str:
    """A line with other keys and another time; `parts`: what is between, then name and value of each field."""
    out = [parts[0]]
    for name, value, rest in zip(parts[1::3], parts[2::3], parts[3::3]):
        match name:
            case "workload_key":
                value = f'"{workload}"'
            case "family_key":
                value = f'"{family}"'
            case "config_key":
                value = f'"{rng.getrandbits(64):016x}"'
            case _:
                value = repr(float(value) * rng.uniform(1, 2))
        out += [f'"{name}":', value, rest]
    return "".join(out)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ask(location: str, cache: Path, keys: list[str], all_of_it: bool) -> dict[str, float]:
    """Opens a layer and asks it; seconds of each, and MiB. For a process of its own."""
    target = Target.parse("x86 -mcpu=znver5 -num-cores=1")
    before = _resident()
    told: list[str] = []
    start = time.perf_counter()
    db = Layer(location, cache, lambda line: print(line, file=sys.stderr)).open(told.append)
    found = {"open": time.perf_counter() - start}
    if db is None:
        raise SystemExit(f"the layer cannot be read: {told}")
    with db:
        times = [_seconds(partial(db.best, key, target.key, target.to_json())) for key in keys]
        found |= {"first best": times[0], "further best": statistics.median(times[1:])}
        if all_of_it:
            found |= {"stats": _seconds(partial(stats, db)), "list": _seconds(db.workloads)}
    if told:
        raise SystemExit(f"not all could be read: {told}")
    found["MiB"] = _resident() - before
    return found


def _resident() -> float:
    """Memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def in_a_process(location: str, cache: Path, keys: list[str], all_of_it: bool = False) -> dict[str, float]:
    given = json.dumps([location, str(cache), keys, all_of_it])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.layers", "--ask", given], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a folder, served as simple web servers do."""
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = re.search(r"port (\d+)", server.stdout.readline())
        assert port is not None
        yield f"http://127.0.0.1:{port[1]}"
    finally:
        server.kill()
        server.wait()


def main(arguments: list[str] | None = None) -> int:
    options = parser("layers", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--tasks", type=int, default=20_000)
    options.add_argument("--trials", type=int, default=50, help="of each task")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--served", action="store_true", help="over HTTP, too")
    options.add_argument("--ask", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.ask:
        location, cache, keys, all_of_it = json.loads(given.ask)
        print(json.dumps(ask(location, Path(cache), keys, all_of_it)))
        return 0
    tasks, trials = (40, 20) if given.quick else (given.tasks, given.trials)
    report, rng = Report("layers", METHOD, given.quick), random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="autotune-layers-") as home:
        folder = Path(home) / "layer"
        folder.mkdir()
        keys = write_segment(folder, tasks, trials, Target.parse("x86 -mcpu=znver5 -num-cores=1"), rng)
        asked = rng.sample(keys, min(20, len(keys)))
        (segment,), (index,) = folder.glob(f"*{SUFFIX}"), folder.glob(f"*{INDEX}")
        sizes = f"{segment.stat().st_size / 2**20:.0f} MiB, index {index.stat().st_size / 2**20:.1f} MiB"
        rows: list[dict[str, str | float]] = []
        for name, cache, further in (("first", "a", False), ("second", "a", True)):
            progress(f"{name} opening, with an index")
            rows.append({"": f"{name} opening", **in_a_process(str(folder), Path(home) / cache, asked, further)})
        if given.served:
            with served(folder) as url:
                for name in ("first", "second"):
                    progress(f"{name} opening, served")
                    rows.append({"": f"{name} opening, served", **in_a_process(url, Path(home) / "c", asked)})
            shutil.rmtree(Path(home) / "c")
        index.unlink()
        for name in ("first", "second"):
            progress(f"{name} opening, without an index")
            rows.append({"": f"{name} opening, no index", **in_a_process(str(folder), Path(home) / "b", asked)})
    report.table(f"seconds: {tasks * trials} trials of {tasks} tasks, {sizes}", rows)
    for row in rows:
        if "no index" not in str(row[""]):
            report.claim(f"{row['']} of a layer", float(row["open"]), "at most", OPEN_S, " s")
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
