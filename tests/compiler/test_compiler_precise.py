"""Precision: what is asked for is what is computed, "auto" keeps its error, and files say what they hold."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import precise
from autotune.compiler.choose import Chooser
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.precise import compile_precisely, in_precision
from autotune.compiler.precision import Precision
from autotune.errors import InputError, ModelError
from autotune.graph import Graph, Output, Value, optimize, partition
from autotune.graph.builder import GraphBuilder
from autotune.graph.narrow import narrowable, narrowed
from autotune.ops.workload import Workload
from autotune.records import Database, TuningRecord
from autotune.runtime.artifact import load_artifact
from autotune.runtime.difference import max_error
from autotune.runtime.feeds import random_feeds
from autotune.search_spaces import default_config
from autotune.target import Target
from autotune.tensor.dtype import DType
from tests.compiler.test_compiler_program import fire_graph as nameless
from tests.graph.graph_models import random
from tests.targets import fixed

pytestmark = pytest.mark.usefixtures("kept")

NATIVE = Target.parse("native -num-cores=1")


def fire_graph() -> Graph:
    """As models are loaded: every node stands for one of ONNX."""
    found = nameless()
    return replace(found, nodes=tuple(replace(node, origins=(node.name,)) for node in found.nodes))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return optimize(fire_graph())


@pytest.fixture(scope="module")
def wide(graph: Graph) -> CompiledModel:
    return compile_graph(graph, NATIVE)


@pytest.fixture(autouse=True)
def few_channels_stay_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """On every CPU: the first convolution of `graph` has three."""
    monkeypatch.setattr(precise, "folds_rows", lambda target, dtype: False)


def error(model: CompiledModel, right: CompiledModel) -> float:
    feeds = random_feeds(right.inputs, 7)
    return max_error(model.run(feeds), right.run(feeds))


@pytest.mark.parametrize(("name", "most"), [("bf16", 2e-2), ("f16", 2e-3)])
def test_products_in_16_bits_are_about_right(graph: Graph, wide: CompiledModel, name: str, most: float) -> None:
    model = compile_precisely(graph, NATIVE, precision=Precision(name))
    assert 0 < error(model, wide) <= most
    assert model.program.precision == f"{name} in 3 of 3 products"
    assert sum(f":{name}" in kernel.description for kernel in model.kernels) >= 3


def test_few_channels_are_narrow_where_rows_are_folded(
    graph: Graph, wide: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precise, "folds_rows", lambda target, dtype: True)
    model = compile_precisely(graph, NATIVE, precision=Precision("bf16"))
    assert 0 < error(model, wide) <= 2e-2
    assert model.program.precision == "bf16 in 4 of 4 products"


@pytest.mark.parametrize(
    ("cpu", "dtype", "folds"),
    [
        ("znver4", DType.bf16, True), ("cooperlake", DType.bf16, False), ("graniterapids", DType.bf16, True),
        ("graniterapids", DType.f16, True), ("sapphirerapids", DType.f16, False), ("haswell", DType.bf16, False),
    ],
)  # fmt: skip
def test_whatfolds_rows(cpu: str, dtype: DType, folds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert precise.folds_rows(fixed(f"x86 -mcpu={cpu} -num-cores=1"), dtype) is folds


@pytest.mark.parametrize(
    ("cpu", "rounds"), [("znver4", True), ("cooperlake", False), ("graniterapids", False), ("haswell", False)]
)
def test_tiles_are_rounded_where_vectors_multiply_bf16_faster(cpu: str, rounds: bool) -> None:
    """Beside tile registers transforms would take longer than products."""
    assert precise.rounds_tiles(fixed(f"x86 -mcpu={cpu} -num-cores=1")) is rounds


@pytest.mark.parametrize(("name", "most"), [("bf16", 2e-2), ("f16", 2e-3)])
@pytest.mark.parametrize("channels", [48, 10])
@pytest.mark.parametrize("narrow", [True, False])
def test_depthwise_convolutions_between_products_are_about_right(
    channels: int, name: str, most: float, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they read 16 bits or, as on CPUs whose instruction for those is slow, 32."""
    monkeypatch.setattr(precise, "_folds_pairs", lambda target: narrow)
    builder = GraphBuilder("net")
    x = builder.input(Value("x", "f32", (1, 16, 9, 9)))
    for n, (filters, depth, side, groups) in enumerate(
        ((channels, 16, 1, 1), (channels, 1, 3, channels), (16, channels, 1, 1))
    ):
        weight = builder.constant(random(filters, depth, side, side, seed=n), "w")
        pad, one = (side // 2,) * 4, (1, 1)
        window = builder.emit("conv2d", (x, weight), f"c{n}", f"C{n}", stride=one, pad=pad, dilation=one, groups=groups)
        x = builder.emit("relu", (window,), f"r{n}", "")
    graph = builder.build([Output("y", x)])
    model = compile_precisely(graph, NATIVE, precision=Precision(name))
    assert [kernel.description.count(f":{name}") for kernel in model.kernels if "groups=" in kernel.description] == [
        narrow
    ]
    assert 0 < error(model, compile_graph(graph, NATIVE)) <= most


def test_f32_is_as_it_was(graph: Graph, wide: CompiledModel) -> None:
    model = compile_precisely(graph, NATIVE)
    assert model.key == wide.key and model.program.precision == "f32"


def prefer(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Let products of a dtype take half the time of others."""

    def seconds(workload: Workload, choose: Chooser, strict_fp: bool, *, least: bool) -> float:
        return 0.5 if any(entry.type.dtype == dtype for entry in workload.inputs) else 1.0

    monkeypatch.setattr(precise, "_seconds", seconds)


def test_auto_takes_what_is_faster(
    graph: Graph, wide: CompiledModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefer(monkeypatch, "bf16")
    model = compile_precisely(graph, NATIVE, None, ObjectCache(tmp_path), precision=Precision("auto", 0.1))
    assert (model.precise.narrow, model.precise.products) == (3, 3)
    assert model.precise.error == pytest.approx(error(model, wide), rel=3)
    assert "off by" in model.program.precision


def test_auto_keeps_its_error(graph: Graph, wide: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "bf16")
    _, all_narrow = in_precision(graph, NATIVE, precision=Precision("auto", 0.5))
    assert all_narrow.error is not None
    _, fewer = in_precision(graph, NATIVE, precision=Precision("auto", all_narrow.error / 1.2))
    assert fewer.narrow < 3 and fewer.error is not None and fewer.error <= precise.MARGIN * all_narrow.error / 1.2
    assert "more would err" in fewer.note
    same, none = in_precision(graph, NATIVE, precision=Precision("auto", 1e-9))
    assert same is graph and str(none) == "f32 (more would err by over 1e-09)"


def test_auto_keeps_a_margin_on_inputs_of_several_sizes(
    graph: Graph, wide: CompiledModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The limit is what all products err by on one input: others, on which they err by more, decide, too."""
    prefer(monkeypatch, "bf16")
    allowed = error(compile_graph(narrowed(graph, DType.bf16, [n.name for n in narrowable(graph)]), NATIVE), wide)
    model = compile_precisely(graph, NATIVE, None, ObjectCache(tmp_path), precision=Precision("auto", allowed))
    assert len(set(precise.SIZES)) > 2
    for seed, size in enumerate(precise.SIZES):
        feeds = random_feeds(wide.inputs, seed, size)
        assert max_error(model.run(feeds), wide.run(feeds)) <= precise.MARGIN * allowed


def windows(count: int) -> Graph:
    """So many convolutions that Winograd's tiles compute, one behind the other, for as many kernels."""
    builder = GraphBuilder("windows")
    x = builder.input(Value("x", "f32", (1, 64, 28, 28)))
    for n in range(count):
        weight = builder.constant(random(64, 64, 3, 3, seed=n) / np.float32(24), "w")
        window = builder.emit(
            "conv2d", (x, weight), f"c{n}", f"C{n}", stride=(1, 1), pad=(1,) * 4, dilation=(1, 1), groups=1
        )
        x = builder.emit("relu", (window,), f"r{n}", f"R{n}")
    graph = builder.build([Output("y", x)])
    return replace(graph, nodes=tuple(replace(node, origins=(node.name,)) for node in graph.nodes))


def test_auto_rounds_tiles_as_the_error_allows() -> None:
    if not precise.rounds_tiles(NATIVE):
        pytest.skip("this CPU's vectors multiply bf16 no faster than f32, or its tile registers do")
    graph = windows(4)
    wide = compile_graph(graph, NATIVE)
    errors = {}
    for allowed, points in ((0.3, {6}), (0.012, {4, 6}), (0.006, set[int]())):
        found, said = in_precision(graph, NATIVE, precision=Precision("auto", allowed))
        told = {dict(node.attrs)["rounded"] for node in found.nodes if "rounded" in dict(node.attrs)}
        assert told <= points and bool(told) == bool(said.rounded) and said.error is not None
        errors[allowed] = error(compile_graph(found, NATIVE), wide)
        assert errors[allowed] <= allowed and said.error <= precise.MARGIN * allowed
        assert ("by tiles that it rounds" in str(said)) == bool(said.rounded)
    assert errors[0.3] > errors[0.006]
    assert in_precision(graph, NATIVE, precision=Precision("auto", 0.3), strict_fp=True)[1].rounded == 0


def measured(workload: Workload, seconds: float) -> TuningRecord:
    config = default_config(workload, NATIVE)
    return TuningRecord(
        workload_key=workload.key, workload=workload.to_json(), target_key=NATIVE.key, target=NATIVE.to_json(),
        config_key=config.key, config=config.to_json(), template=config.template or "", seconds=seconds, verified=True,
        created=1.0,
    )  # fmt: skip


def test_what_was_tuned_in_16_bits_is_held_against_no_hope(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once kernels have records, which take longer than what is expected of others, the next build has them still."""
    prefer(monkeypatch, "bf16")
    monkeypatch.setattr(precise, "rounds_tiles", lambda target: False)
    auto = functools.partial(in_precision, precision=Precision("auto", 0.1))
    before, _ = auto(graph, NATIVE)
    with Database.open(tmp_path / "db.sqlite") as database:
        narrow = [group.workload for group in partition(before) if "bf16" in group.workload.describe()]
        database.add_many([measured(workload, 2.0) for workload in dict.fromkeys(narrow)])
        after, said = auto(graph, NATIVE, database)
        assert said.narrow == 3
        assert [group.workload for group in partition(after)] == [group.workload for group in partition(before)]
        wide = dict.fromkeys(group.workload for group in partition(graph))
        database.add_many([measured(workload, 1.0) for workload in wide])
        assert auto(graph, NATIVE, database)[1].narrow == 0, "what was measured in both is known"


def test_auto_where_16_bits_are_no_faster(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "f32")
    found, said = in_precision(graph, NATIVE, precision=Precision("auto"))
    assert found is graph and str(said) == "f32 (16 bits would not be faster)"


def test_auto_for_another_cpu_says_that_nothing_was_tried(graph: Graph) -> None:
    zen, old = (Target.parse(f"x86 -mcpu={cpu} -num-cores=1") for cpu in ("znver4", "haswell"))
    assert in_precision(graph, old, precision=Precision("auto"))[1].narrow == 0
    narrow = Precision("auto", 0.5)
    found, said = in_precision(graph, zen, precision=narrow)
    if not zen.missing_features():
        pytest.skip("this CPU can run it")
    assert said.narrow == 0 or "another CPU" in said.note
    assert len(narrowable(found)) == 4 - 1 - said.narrow or said.narrow


def test_a_layer_that_does_not_fit_f16() -> None:
    graph = fire_graph()
    graph.constants["w3"][0, 0, 0, 0] = 1e5
    with pytest.raises(ModelError, match="f16: the weight 'w3' of 'c' reaches 100000, and f16 ends at 65504"):
        in_precision(graph, NATIVE, precision=Precision("f16"))


def test_a_model_of_half_floats_computes_in_them_where_that_is_faster(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, "bf16")
    own = replace(graph, own="bf16")
    assert str(in_precision(own, NATIVE, precision=Precision())[1]) == "bf16 in 3 of 3 products"
    assert in_precision(own, NATIVE, precision=Precision("f32"))[0] is own
    assert in_precision(replace(graph, own="f16"), NATIVE, precision=Precision())[1].narrow == 0
    assert in_precision(graph, NATIVE, precision=Precision())[0] is graph


def test_files_say_their_precision(graph: Graph, tmp_path: Path) -> None:
    model = compile_precisely(graph, NATIVE, precision=Precision("bf16"))
    model.save(tmp_path / "model.at")
    (program,) = load_artifact(tmp_path / "model.at").programs
    assert program.precision == "bf16 in 3 of 3 products"


def test_workloads_of_other_dtypes_have_records_of_their_own(graph: Graph) -> None:
    narrow = in_precision(graph, NATIVE, precision=Precision("bf16"))[0]
    keys = [{group.workload.key for group in partition(g) if group.workload.anchor} for g in (graph, narrow)]
    assert len(keys[0]) == len(keys[1]) and not keys[0] & keys[1]


@pytest.mark.parametrize(
    ("name", "most", "message"),
    [
        ("int8", None, "there is no precision 'int8'; there are model, f32, bf16, f16, auto"),
        ("auto", 0.0, "the largest error 0.0 is no share of a range; give for example 0.01"),
        ("auto", float("nan"), "the largest error nan is no share"),
        ("bf16", 0.1, "a largest error is what precisions model, f32 and auto heed, not bf16"),
    ],
)
def test_bad_wishes(name: str, most: float | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Precision.parse(name, most)


def test_infinite_errors_are_no_small_ones(graph: Graph) -> None:
    """What leaves f16's range on the sample inputs would come out as infinity or NaN."""
    assert max_error([np.array([np.inf, 1.0])], [np.array([1.0, 2.0])]) == float("inf")
