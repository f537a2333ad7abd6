"""Seconds to a ready session, in fresh processes: built with and without the object cache, and from a compiled file.

python -m benchmarks.startup                             resnet50, untuned and with records of 45 seconds; all models
python -m benchmarks.startup resnet50 --db tuning.sqlite with the records of a database, nothing is tuned
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from autotune import machine
from autotune.measure.timing import interleave, latency
from benchmarks import zoo
from benchmarks.engines import Engine, available
from benchmarks.report import ROOT, Report, parser, progress

METHOD = (
    "Every start is a fresh Python process, repeated, medians. `session`: from `import autotune` to a session that is "
    "ready to run (import included), the figure of the claims; `process`: from starting Python; `first run`: what the "
    "first inference then takes. The object cache is an empty folder, or the one that the start before filled. "
    "From records: those of a short tuning, or of the database given. Every model of the zoo starts once, untuned. "
    "Overhead: session.run on relu of 8 floats against the bare NumPy call, medians of interleaved blocks of 200 calls."
)

# What a start consists of; prints seconds since `begin`, the monotonic clock of the parent before it started this.
CHILD = """
import sys, json, time
options = json.loads(sys.argv[1])
start = time.monotonic()
import autotune
session = autotune.InferenceSession(options["model"], target=options["target"], database=options["database"])
ready = time.monotonic()
import numpy
from autotune.tensor.dtype import DType
feeds = {i.name: numpy.zeros(i.shape, DType(i.spec.dtype).numpy) for i in session.get_inputs()}
begun = time.monotonic()
session.run(None, feeds)
ran = time.monotonic()
print(json.dumps({"session s": ready - start, "process s": ready - options["begin"], "first run s": ran - begun}))
"""
IMPORT = """
import sys, json, time
start = time.monotonic()
__import__(json.loads(sys.argv[1])["module"])
print(json.dumps({"import s": time.monotonic() - start}))
"""
OVERHEAD_RUNS = 200


def start(program: str, cache: Path, **options: object) -> dict[str, float]:
    """One fresh process running `program`; what it printed.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.
    """
    given = json.dumps({**options, "begin": time.monotonic()})
    environment = {**machine.environment(), "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an install has its bytecode
    done = subprocess.run(
        [sys.executable, "-c", program, given], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def command_seconds(*words: str) -> float:
    """What a command of autotune takes, the start of Python included."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "autotune", *words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def sessions(
    model: Path, threads: int, database: Path | None, repeats: int, folder: Path
) -> dict[str, dict[str, float]]:
    """What a start takes: without object cache, with it, and from a compiled file."""
    target = f"native -num-cores={threads}"
    records: object = str(database.resolve()) if database is not None else False
    folder.mkdir(exist_ok=True)
    compiled = folder / "model.atc"
    options: dict[str, object] = {"model": str(model), "target": target, "database": records}
    found: dict[str, list[dict[str, float]]] = {"no object cache": [], "object cache": [], "compiled file": []}
    for number in range(repeats):
        cache = folder / f"cache{number}"
        found["no object cache"].append(start(CHILD, cache, **options))
        found["object cache"].append(start(CHILD, cache, **options))
    where = ["--db", str(database.resolve())] if database is not None else ["--untuned"]
    command = [sys.executable, "-m", "autotune", "compile", str(model), "-o", str(compiled), "--target", target, *where]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    for _ in range(repeats):
        found["compiled file"].append(start(CHILD, folder / "unused", **{**options, "model": str(compiled)}))
    return {name: medians(samples) for name, samples in found.items()}


def tuned(model: Path, threads: int, seconds: int, folder: Path) -> Path:
    """A database with the records of so long a tuning."""
    database = folder / "tuning.sqlite"
    target = f"native -num-cores={threads}"
    command = [sys.executable, "-m", "autotune", "tune", str(model), "--target", target, "--db", str(database)]
    command += ["--budget", f"{seconds}s", "--verdict", "tuned", "--quiet"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return database


def cold(names: Sequence[str], threads: int, folder: Path) -> dict[str, dict[str, float]]:
    """What the first start of each model of the zoo takes, untuned."""
    found = {}
    for name in names:
        progress(f"{name}, cold")
        model, cache = folder / f"{name}.onnx", folder / f"cold-{name}"
        onnx.save(zoo.build(name), model)
        found[name] = start(CHILD, cache, model=str(model), target=f"native -num-cores={threads}", database=False)
        model.unlink()
        shutil.rmtree(cache)
    return found


def tiny_model() -> onnx.ModelProto:
    """relu of 8 floats."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


def overhead(rounds: int) -> dict[str, float]:
    """Seconds per call of session.run on a tiny model, of ONNX Runtime's when installed, and of NumPy alone."""
    import autotune

    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)
    zero = np.float32(0)
    source = tiny_model().SerializeToString()
    ours = autotune.InferenceSession(source, target="native -num-cores=1", database=False)
    calls: dict[str, Callable[[], object]] = {
        "numpy": lambda: np.maximum(x, zero),
        "autotune": lambda: ours.run(None, {"x": x}),
    }
    if available("onnxruntime"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # helpers that spin would slow the others down
        theirs = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        calls["onnxruntime"] = lambda: theirs.run(None, {"x": x})
    samples = interleave([_block(call) for call in calls.values()], rounds)
    return {name: latency(found) for name, found in zip(calls, samples)}


def _block(call: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        begun = time.perf_counter()
        for _ in range(OVERHEAD_RUNS):
            call()
        return (time.perf_counter() - begun) / OVERHEAD_RUNS

    return run


def main(arguments: list[str] | None = None) -> int:
    options = parser("startup", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("model", nargs="?", choices=zoo.names(), help="default: resnet50")
    options.add_argument("--threads", type=int, default=machine.allowed_cores())
    options.add_argument("--db", type=Path, help="a tuning database (default: a new one)")
    options.add_argument("--tune", type=int, default=45, metavar="SECONDS", help="without --db, to make records")
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args(arguments)
    if given.db is not None and not given.db.exists():
        options.error(f"there is no database '{given.db}'")
    name = given.model or ("squeezenet" if given.quick else "resnet50")
    repeats = 1 if given.quick else given.repeats
    report = Report("startup", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-startup-") as temporary:
        folder = Path(temporary)
        path = folder / f"{name}.onnx"
        onnx.save(zoo.build(name), path)
        progress(f"{name}, {given.threads} threads")
        found = sessions(path, given.threads, None, repeats, folder / "untuned")
        progress(f"{name}, from records")
        database = given.db or tuned(path, given.threads, 2 if given.quick else given.tune, folder)
        recorded = sessions(path, given.threads, database, repeats, folder / "tuned")
        found |= {f"{what}, from records": row for what, row in recorded.items()}
        if available("onnxruntime"):
            with Engine("onnxruntime", path, given.threads) as engine:
                found["onnxruntime"] = {"session s": engine.load_seconds + engine.import_seconds}
        first = cold(["squeezenet", "lstm"] if given.quick else zoo.names(), given.threads, folder)
        imports = {m: medians([start(IMPORT, folder, module=m) for _ in range(repeats)]) for m in ("autotune", "numpy")}
    report.table("ready session", [{"model": name, "from": what, **row} for what, row in found.items()])
    report.table("first start of every model", [{"model": model, **row} for model, row in first.items()])
    report.table("imports", [{"module": module, **row} for module, row in imports.items()])
    shown = [command_seconds("--help") for _ in range(repeats)]
    report.table("commands", [{"command": "autotune --help", "s": statistics.median(shown)}])
    claims(report, name, found)
    slowest = max(first, key=lambda model: first[model]["session s"])
    report.claim(
        f"first start of every model, the slowest {slowest}", first[slowest]["session s"], "at most", 5.0, " s"
    )
    report.claim("import autotune", imports["autotune"]["import s"], "at most", 0.15, " s")
    report.claim("autotune --help", statistics.median(shown), "at most", 0.3, " s")
    times = overhead(3 if given.quick else 40)
    report.table("session.run on a tiny model", [{"call": call, "µs": s * 1e6} for call, s in times.items()])
    extra = (times["autotune"] - times["numpy"]) * 1e6
    report.claim("overhead of session.run on a tiny model", extra, "at most", 20.0, " µs")
    report.finish(given.json)
    return 0


def claims(report: Report, name: str, found: Mapping[str, Mapping[str, float]]) -> None:
    for what, bound in (("no object cache", 1.5), ("object cache", 0.4), ("compiled file", 0.3)):
        text = f"{name}: ready session, {what}, from records"
        report.claim(text, found[f"{what}, from records"]["session s"], "at most", bound, " s")


if __name__ == "__main__":
    sys.exit(main())
