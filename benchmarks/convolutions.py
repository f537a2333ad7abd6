"""Every distinct convolution of the zoo's models by its template's untuned default, against the FMA probe.

python -m benchmarks.convolutions                              the seven models, native and -mcpu=haswell
python -m benchmarks.convolutions --model resnet50 --target haswell
"""

from __future__ import annotations

import argparse

import autotune.graph as graphs
from autotune.ops.conv import Conv
from autotune.ops.workload import Workload
from autotune.search_spaces import default_config
from autotune.search_spaces.operators.conv2d_shape import sizes
from benchmarks import zoo
from benchmarks.language import target_of
from benchmarks.report import Report, Row, parser, progress
from benchmarks.workshop import Workshop, figures

MODELS = ("resnet50", "resnet18", "squeezenet", "vgg19", "inception_v1", "alexnet", "mobilenetv2")
BOUND = 85.0
METHOD = (
    "One thread. Each kernel (with what is fused behind it) is verified against a float64 reference, then timed in a "
    "compiled loop in turn with a fixed FMA probe at the target's vector width; time is the minimum of the batches, "
    "GFLOP/s count 2 per multiply-add of the convolution, Winograd is left out. A depthwise convolution does 9 "
    "multiply-adds per element that it reads: where it does not fit into L2 it is bound by L3."
)


def main(arguments: list[str] | None = None) -> int:
    options = parser("convolutions", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--target", choices=("native", "haswell"), action="append", help="default: both")
    options.add_argument("--model", choices=zoo.names(), action="append", help="default: seven of them")
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args(arguments)
    models = given.model or (["squeezenet"] if given.quick else list(MODELS))
    report = Report("convolutions", METHOD, given.quick)
    found = convolutions(models)
    if given.quick:
        found = dict(list(found.items())[-2:])
    for name in given.target or ("native", "haswell"):
        slow = [figure for figure in measure(report, name, found, 2 if given.quick else given.rounds) if figure < BOUND]
        report.claim(f"dense convolutions below {BOUND:.0f} % of the probe, {name}", len(slow), "at most", 0)
    report.finish(given.json)
    return 0


def convolutions(models: list[str]) -> dict[Workload, list[str]]:
    """The distinct convolutions of the models, and which of them have each."""
    found: dict[Conv, tuple[Workload, list[str]]] = {}
    for model in models:
        progress(f"reading {model}")
        graph = graphs.optimize(graphs.load_model(zoo.build(model).SerializeToString()))
        for task in graphs.tasks(graph):
            if task.workload.anchor is not None and task.workload.anchor.op == "conv2d":
                owners = found.setdefault(sizes(task.workload), (task.workload, []))[1]
                owners += [model] * (model not in owners)
    return dict(found.values())


def measure(report: Report, name: str, found: dict[Workload, list[str]], rounds: int) -> list[float]:
    """One row per convolution, the slowest first; returns % of the probe of the dense ones."""
    target, rows, dense = target_of(name), list[Row](), list[float]()
    with Workshop(target) as workshop:
        for workload, owners in found.items():
            case = describe(sizes(workload))
            progress(f"{name}: {case}")
            config = default_config(workload, target, strict_fp=True)
            template = config.template or ""
            outcome = workshop.race(workload, {template: config}, rounds)[template]
            row: Row = {"case": case, "models": " ".join(owners), "template": template, **figures(workload, outcome)}
            rows.append(row)
            if sizes(workload).groups == 1:
                dense.append(float(row.get("% of probe") or 0))
    report.table(f"convolutions, {name}", sorted(rows, key=lambda row: float(row.get("% of probe") or 0)))
    return dense


def describe(p: Conv) -> str:
    """For people: 56×56 64→128 3×3 s2."""
    text = f"{p.h}×{p.w} {p.c}→{p.k} {p.r}×{p.s}"
    return text + f" s{p.stride[0]}" * (p.stride != (1, 1)) + f" g{p.groups}" * (p.groups > 1)


if __name__ == "__main__":
    raise SystemExit(main())
