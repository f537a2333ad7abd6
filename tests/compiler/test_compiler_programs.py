"""Programs that are known by what decides them: names do not count, everything else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.compiler.compile import compile_graph
from autotune.compiler.graph_key import graph_key
from autotune.compiler.programs import Recorder
from autotune.compiler.weights import PackedWeights
from autotune.graph import Graph, load_model, optimize
from autotune.graph.ir import Output, Value
from tests.cli.cli_models import chain_model
from tests.compiler.test_compiler_staged import TARGET, data


@pytest.fixture
def graph() -> Graph:
    return load_model(chain_model(1).SerializeToString())


def key(graph: Graph) -> str:
    return graph_key(graph, PackedWeights().contents)


def renamed(graph: Graph) -> Graph:
    """All values under other names."""

    def other(value: Value) -> Value:
        return replace(value, name=f"other {value.name}")

    return replace(
        graph,
        inputs=tuple(map(other, graph.inputs)),
        nodes=tuple(
            replace(node, inputs=tuple(f"other {name}" for name in node.inputs), output=other(node.output))
            for node in graph.nodes
        ),
        outputs=tuple(Output(f"other {output.name}", f"other {output.value}") for output in graph.outputs),
        constants={f"other {name}": array for name, array in graph.constants.items()},
    )


def test_what_decides_a_program_is_in_its_key(graph: Graph) -> None:
    (name, weights), *_ = graph.constants.items()
    (first, *nodes), (given, *others) = graph.nodes, graph.inputs
    different = [
        replace(graph, constants={**graph.constants, name: weights + np.float32(1e-6)}),
        replace(graph, nodes=(replace(first, attrs=(*first.attrs, ("more", 1))), *nodes)),
        replace(graph, inputs=(replace(given, shape=(5, *given.shape[1:])), *others)),
        replace(graph, outputs=(*graph.outputs, Output("twice", graph.outputs[0].value))),
        replace(graph, outputs=(replace(graph.outputs[0], complaint="it is wrong"),)),
        replace(graph, own="f16"),
    ]
    assert len({key(one) for one in (graph, *different)}) == 1 + len(different)
    assert key(graph) == key(renamed(graph)) == key(load_model(chain_model(1).SerializeToString()))


def test_a_program_takes_the_names_of_who_asks(graph: Graph) -> None:
    known = Recorder()
    assert known.recall(graph) is None
    known.keep(graph, compile_graph(optimize(graph), TARGET))
    found = known.recall(renamed(graph))
    assert found is not None and found.input_names == ("other x",)
    assert [spec.name for spec, _ in found.program.outputs] == ["other y"]
    x = data(4, 16)
    for array, wanted in zip(found.run({"other x": x}), compile_graph(optimize(graph), TARGET).run({"x": x})):
        np.testing.assert_array_equal(array, wanted)
