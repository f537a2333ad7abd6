"""Kernels of several outputs in compiled models: one kernel, every output right, whatever the templates and layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.compiler.compile import compile_graph
from autotune.compiler.tasks import kernel_tasks
from autotune.graph import Graph, Output, Value, evaluate_graph
from autotune.graph.builder import GraphBuilder
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import make_reference
from autotune.measure.verify import verify
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, registry
from autotune.runtime.threads import ThreadPool
from autotune.search_spaces import Config, Interface, make_schedule, templates_for
from autotune.target import Target
from autotune.tensor import Layout, Tensor, arg_reducer, compute, reduce, reduce_axis
from autotune.tensor.stage import compute_many

TARGET = Target.parse("native -num-cores=2")


@pytest.fixture
def best_pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An operator whose results come from one tuple reducer: the largest along H, where it is, and it plus one."""
    monkeypatch.setattr(registry, "_OPERATORS", dict(registry._OPERATORS))

    @registry.operator("best_pair", result=0)
    def best(inputs: Any, attrs: Any) -> Tensor:
        (x,) = inputs
        k = reduce_axis(x.shape[2], "k")
        shape = (*x.shape[:2], 1, x.shape[3])
        found = compute_many(
            shape, lambda n, c, h, w: reduce(arg_reducer("argmax", x.dtype), (x[n, c, k, w], k.var), k), ("v", "p")
        )
        results = (*found, compute(shape, lambda *i: found[0][i] + 1.0, "next"))
        return results[int(attrs["result"])]

    yield
    registry.compute_def.cache_clear()
    registry.value_types.cache_clear()


def pair_workload(*results: int) -> Workload:
    nodes = tuple(WorkloadNode.make("best_pair", (0,), result=n) for n in results)
    return Workload((WorkloadInput(TensorType("f32", (2, 20, 7, 9))),), nodes, tuple(range(1, len(nodes) + 1)))


def verified(workload: Workload, config: Config, interface: Interface | None = None) -> None:
    kernel = build_kernel(make_schedule(workload, config, TARGET, interface), TARGET)
    task = TaskData(make_reference(workload))
    with Bench(kernel, task, 2) as bench:
        found = verify(bench, [ThreadPool(1), ThreadPool(2)])
    assert not isinstance(found, Failure), found.message


@pytest.mark.parametrize("results", [(0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.usefixtures("best_pair")
def test_every_template_computes_all_outputs(results: tuple[int, ...]) -> None:
    workload = pair_workload(*results)
    assert len(registry.compute_def(workload).stages) == (2 if 2 in results else 1)
    for template in templates_for(workload, TARGET):
        verified(workload, template.default(workload, TARGET).replace(template=template.name))


@pytest.mark.usefixtures("best_pair")
def test_outputs_in_different_layouts() -> None:
    workload, blocked = pair_workload(0, 1), Layout.blocked(4, [(1, 16)])
    interface = Interface((blocked, blocked.with_halo([(0, 0), (0, 0), (1, 1), (1, 1)]), Layout.row_major(4)))
    for template in templates_for(workload, TARGET):
        verified(workload, template.default(workload, TARGET).replace(template=template.name), interface)


def top_graph(axis: int, k: int) -> Graph:
    builder = GraphBuilder("top")
    x = builder.emit("relu", [builder.input(Value("x", "f32", (3, 7, 6)))])
    values, places = (builder.emit("top_k", [x], axis=axis, k=k, largest=False, sorted=True, result=n) for n in (0, 1))
    after = builder.emit("exp", [values])
    return builder.build([Output("after", after), Output("places", places)])


@pytest.mark.parametrize(("axis", "k"), [(2, 3), (0, 2), (1, 0)])
def test_top_k_compiled(axis: int, k: int) -> None:
    graph = top_graph(axis, k)
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 7, 6)).astype(np.float32)}
    model = compile_graph(graph, TARGET)
    kernels = [[part.split()[0] for part in report.description.split(" + ")] for report in model.kernels]
    assert kernels == [["relu"], ["top_k", "top_k"], ["exp"]]
    expected = evaluate_graph(graph, feeds)
    for got, name in zip(model.run(feeds), expected, strict=True):
        np.testing.assert_allclose(got, expected[name], rtol=1e-6)


def test_its_kernel_is_a_task_with_all_operands() -> None:
    (_, task, _) = kernel_tasks(top_graph(2, 3), TARGET)
    assert task.interface is not None
    assert len(task.interface.layouts) == 3
    verified(
        task.workload,
        templates_for(task.workload, TARGET)[0].default(task.workload, TARGET).replace(template="generic"),
    )
