"""`autotune compile`: a model becomes one file that runs without ONNX, XGBoost or a compiler; or a C library."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.asked import AskedRanges
from autotune.cli.asked_target import with_threads
from autotune.cli.feeds import FixOption, InputsOption, load_arrays, load_runs
from autotune.cli.options import (
    DbOption,
    DumpGraphOption,
    ImportOption,
    JsonOption,
    LayerOption,
    MaxErrorOption,
    MaxMemoryOption,
    ModelArgument,
    OutputOption,
    PrecisionOption,
    ShapesOption,
    SkipPassOption,
    StrictOption,
    TargetOption,
    ThreadsOption,
    UntunedOption,
    check_writable,
    database_of,
    load_imports,
    parse_size,
)
from autotune.cli.status import working
from autotune.cli.text import facts, finite, print_json, print_prose, print_table, size, table
from autotune.errors import InputError
from autotune.report.text import counted, duration, percent

if TYPE_CHECKING:
    from autotune.compiler.compile import CompiledModel
    from autotune.compiler.compiled_shapes import CompiledShapes
    from autotune.report.coverage import Coverage

HeaderOption = Annotated[
    Path | None, typer.Option("--header", metavar="FILE", help="Of a library: write its C header, too.")
]
PrefixOption = Annotated[
    str | None,
    typer.Option("--prefix", metavar="NAME", help="Of a library: how its symbols begin [default: its name]."),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option("--weights", metavar="FILE", help="Of a library: put the weights beside it, not into it."),
]
AlsoOption = Annotated[
    list[str] | None,
    typer.Option(
        "--also", metavar="TARGET", help="Of a library: code for a further CPU; the first that can run is used. Repeat."
    ),
]
SignOption = Annotated[
    Path | None,
    typer.Option("--sign", metavar="KEY", help="A private Ed25519 key (PEM) to sign the file with."),
]
LIBRARY = {".so": "a shared library"}
OTHER_KINDS = {
    ".dll": "a shared library",
    ".dylib": "a shared library",
    ".a": "a static library",
    ".o": "an object file",
    ".onnx": "an ONNX model",
}


def compile_model(
    model: ModelArgument,
    out: OutputOption = None,
    target: TargetOption = "native",
    threads: ThreadsOption = None,
    shape: ShapesOption = None,
    db: DbOption = None,
    layer: LayerOption = None,
    untuned: UntunedOption = False,
    strict_fp: StrictOption = False,
    precision: PrecisionOption = "model",
    max_error: MaxErrorOption = None,
    max_memory: MaxMemoryOption = None,
    fix: FixOption = None,
    inputs: InputsOption = None,
    skip_pass: SkipPassOption = None,
    dump_graph: DumpGraphOption = None,
    imports: ImportOption = None,
    header: HeaderOption = None,
    prefix: PrefixOption = None,
    weights: WeightsOption = None,
    also: AlsoOption = None,
    sign: SignOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model with the best schedules known: to one file, or, as FILE.so, to a shared library for C.

    A library needs no Python to run, and a C compiler to be made. Of several shapes, or ranges of them, a file holds
    the programs that serve them, and the weights once. A model whose shapes a run decides is run here, on inputs that
    are given or drawn; its file holds the model, and the programs of these runs.
    """
    with working("starting"):
        from autotune.aot import save_library
        from autotune.aot.interface import identifiers
        from autotune.api.compile import compile
        from autotune.api.staged import compile_staged, needs_stages
        from autotune.cli.compile_staged import ranges_of, show_staged
        from autotune.report.coverage import Coverage
        from autotune.runtime.signature import Signer
        from autotune.tensor.shape_range import only_shape

    out = model.with_suffix(".at") if out is None else out
    asked = AskedRanges(target, threads, shape, inputs or fix, db, layer, precision, max_error, imports)
    ranges = asked.ranges
    shapes = only_shape(ranges)
    library = out.suffix.lower() in LIBRARY
    refuse_other_kinds(out)
    if not library and (header or prefix or weights or also):
        raise InputError("--header, --prefix, --weights and --also are about libraries: name the output FILE.so")
    if library and shapes is None:
        raise InputError("a library is a program of one shape: give one, or name the output FILE.at")
    for file in (out, header, weights):
        if file is not None:
            check_writable(file)
    if sign is not None:
        if library:
            raise InputError("--sign is about files that autotune loads; sign a library as your system signs programs")
        Signer.load(sign)  # refused now, not after minutes
    load_imports(imports)
    limit = parse_size(max_memory)
    targets = [asked.target, *(with_threads(one, threads) for one in also or ())]
    start = time.perf_counter()
    database = False if untuned else database_of(db, layer)
    with working(f"compiling {model}"):
        options: dict[str, Any] = {
            "fixed": load_arrays(fix, "--fix"), "strict_fp": strict_fp, "max_memory": limit,
            "skip_passes": skip_pass or (), "dump_graph": dump_graph, "precision": precision, "max_error": max_error,
        }  # fmt: skip
        arrays = load_runs(inputs, "--input")
        staged = not library and needs_stages(model, ranges or ranges_of(arrays), options["fixed"])
        if arrays and not staged:
            raise InputError(f"--input is for models whose shapes a run decides, and {model} in these shapes is none")
        if staged:
            ready = compile_staged(model, asked.target, database, shapes=ranges or None, inputs=arrays, **options)
            ready.save(out, sign)
        elif shapes is None:
            from autotune.api.shapes import compile_shapes

            every = compile_shapes(model, ranges, asked.target, database, **options)
            every.save(out, sign)
        else:
            variants = [compile(model, one, database, shapes=shapes, **options) for one in targets]
            compiled = variants[0]
            if library:
                name = prefix or identifiers([out.stem.removeprefix("lib")])[0]
                save_library(out, variants, name, header, weights, f"{model.name}, compiled")
            else:
                compiled.save(out, sign)
    seconds = time.perf_counter() - start
    here = asked.parsed_target().runs_on_host()
    if staged:
        coverage = show_staged(out, ready, seconds, as_json)
        if not as_json:
            print_coverage(coverage, asked.tune_command(model), here)
        return
    if shapes is None:
        show_shapes(out, every, seconds, asked.tune_command(model), here, as_json)
        return
    coverage = Coverage.of(compiled.kernels)
    if as_json:
        print_json(file_values(out, compiled, coverage, seconds))
        return
    show_file(out, compiled, seconds)
    print_coverage(coverage, asked.tune_command(model), here)


def show_file(out: Path, compiled: CompiledModel, seconds: float) -> None:
    """What was written.

    Args:
        seconds: that it took.
    """
    program = compiled.program
    print_table(
        facts(
            ("file", f"{out} ({size(out.stat().st_size)}, written in {seconds:.1f} s)"),
            ("kernels", f"{counted(len(program.calls), 'call')} of {counted(len(compiled.objects), 'object')}"),
            ("memory", f"weights {size(program.constant_bytes)}, a run {_arena(compiled)}"),
            ("threads", str(program.num_threads)),
            ("precision", str(compiled.precise)),
            ("rounding", f"{compiled.expected_error:.1e} of the outputs' range expected"),
        )
    )


def show_shapes(out: Path, compiled: CompiledShapes, seconds: float, command: str, here: bool, as_json: bool) -> None:
    """What became of several shapes.

    Args:
        seconds: that it took.
        command: what tunes them; `here`: whether this machine can.
    """
    from autotune.report.coverage import Coverage

    coverage = Coverage.of([kernel for model in compiled.models.values() for kernel in model.kernels])
    weights = compiled.artifact.constants.nbytes
    if as_json:
        programs = [{"extents": use.extents, "arena_bytes": use.arena_bytes, "own_bytes": use.own_bytes}
                    for use in compiled.uses]  # fmt: skip
        values = {"file": str(out), "bytes": out.stat().st_size, "seconds": seconds, "programs": programs,
                  "weight_bytes": weights, "coverage": coverage.to_dict()}  # fmt: skip
        print_json(values)
        return
    shown = table(*compiled.symbols, "memory of a run", "weights of its own", right=(*compiled.symbols,))
    for use in compiled.uses:
        shown.add_row(*map(str, use.extents.values()), size(use.arena_bytes), size(use.own_bytes))
    print_table(shown)
    found = f"{counted(len(compiled.models), 'program')} of {counted(len(compiled.artifact.objects), 'object')}"
    print_prose(f"{out}: {found}, {size(weights)} of weights ({size(out.stat().st_size)}, written in {seconds:.1f} s)")
    print_coverage(coverage, command, here)


def refuse_other_kinds(out: Path, more: Mapping[str, str] | None = None) -> None:
    """A file whose name promises what it is not would mislead whoever opens it.

    Args:
        more: further kinds by their suffix.

    Raises:
        InputError: the name ends as that of a file of another kind.
    """
    kind = {**OTHER_KINDS, **(more or {})}.get(out.suffix.lower())
    if kind is not None:
        raise InputError(
            f"cannot write {out}: this makes a file for autotune, not {kind}; name it {out.with_suffix('.at')}"
            + ("" if kind not in LIBRARY.values() else f", or: autotune compile MODEL -o {out}")
        )


def _arena(compiled: CompiledModel) -> str:
    """The memory of a run, and what no plan could do without."""
    least = compiled.arena_lower_bound
    more = compiled.program.arena_bytes / least - 1 if least else 0.0
    above = f", {percent(more)} above the least possible" if more >= 0.001 else ""
    return f"{size(compiled.program.arena_bytes)}{above}"


_TIERS = 12
"""Letters before what is said of a tier."""


def print_coverage(coverage: Coverage, command: str, here: bool = True) -> None:
    """What is tuned, what is not and why, and the command that changes it, `here` or on another machine."""
    for part in coverage.parts:
        time_text = f", {duration(part.seconds)} as measured" if part.seconds is not None else ""
        share = f"{part.tier:>10}: {percent(part.share)} of the flops in {counted(part.kernels, 'kernel')}{time_text}"
        print_prose(share, _TIERS)
    print_reasons(coverage, command, here)


def print_reasons(coverage: Coverage, command: str | None, here: bool = True) -> None:
    """Why kernels have no record that applies, and the command that changes it; nothing where all have one.

    Args:
        command: None where the caller says how to go on.
        here: whether this machine can run what is tuned.
    """
    lines = [f"{counted(count, 'kernel')}: {reason}" for reason, count in coverage.reasons[:4]]
    for line in (*lines, *coverage.plain_lines()):
        print_prose(f"{'':{_TIERS}}{line}", _TIERS)
    if not coverage.complete and command is not None:
        print(f"to tune them{'' if here else ', on a CPU of that kind'}: {command}")


def file_values(out: Path, compiled: CompiledModel, coverage: Coverage, seconds: float) -> dict[str, object]:
    """What was written, as JSON."""
    program = compiled.program
    return {
        "file": str(out),
        "bytes": out.stat().st_size,
        "seconds": seconds,
        "kernels": len(program.calls),
        "objects": len(compiled.objects),
        "weight_bytes": program.constant_bytes,
        "arena_bytes": program.arena_bytes,
        "arena_lower_bound": compiled.arena_lower_bound,
        "threads": program.num_threads,
        "expected_error": compiled.expected_error,
        "precision": {**asdict(compiled.precise), "error": finite(compiled.precise.error)},
        "coverage": coverage.to_dict(),
    }
