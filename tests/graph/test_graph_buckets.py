"""What padding of an open dimension takes, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph import open_model
from autotune.graph.frontend.buckets import CannotPad, Padding, dimensions_of, padded_model, padding_of, valid_name
from autotune.graph.frontend.buckets.computed import computed
from autotune.graph.frontend.buckets.facts import Extent, Fact, total
from autotune.graph.frontend.buckets.types import inferred_types

Node = onnx.NodeProto
node = helper.make_node
WEIGHTS: dict[str, Any] = {"w": np.ones((8, 8), np.float32), "zero": np.zeros((), np.int64),
           "one": np.ones((), np.int64), "ones": np.ones(1, np.int64), "join": np.asarray([0, -1], np.int64),
           "table": np.ones((32, 8), np.float32), "none": np.zeros(1, np.int64), "two": np.asarray([2]),
           "odd": np.asarray([7]), "1x1": np.asarray([1, 1]), "column1": np.zeros((1, 1), np.int64),
           "along": np.asarray([3, 1, 2]), "minus": np.asarray([-1]), "row8": np.ones((1, 1, 8), np.float32),
           "number": np.ones((1, 1), np.float32), "column": np.asarray([-1, 1, 1]),
           "eight": np.ones(8, np.float32)}  # fmt: skip


def model(nodes: Sequence[Node], opset: int = 17, more: Mapping[str, Sequence[str | int]] | None = None) -> bytes:
    inputs = {"x": ("batch", "length", 8), **(more or {})}
    graph = helper.make_graph(
        list(nodes), "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )  # fmt: skip
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()
    return data


def padding(*nodes: Node, symbol: str = "length", opset: int = 17) -> Padding:
    return padding_of(open_model(model(nodes, opset)), symbol)


def attention() -> list[Node]:
    return [
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "q"], ["y"]),
    ]


def test_a_batch_is_cut_where_nothing_meets() -> None:
    found = padding(*attention(), symbol="batch")
    assert not found.mixes and not found.masks and not found.zeroed
    assert found.outputs == {"y": (0,)}


def test_tokens_meet_in_a_softmax_which_gets_a_mask() -> None:
    found = padding(*attention())
    assert found.mixes
    (mask,) = found.masks.values()
    assert (mask.axes, mask.fill) == ((2,), -np.inf)
    assert not found.zeroed  # what feeds pad with, zeros, is zeros behind the product
    assert found.outputs == {"y": (1,)}


def test_padding_that_may_be_infinite_is_made_zero_once_for_all_products() -> None:
    nodes = [node("Reciprocal", ["x"], ["r"]), *attention()]
    nodes[1] = node("MatMul", ["r", "w"], ["q"])
    source = open_model(model(nodes))
    found = padding_of(source, "length")
    assert list(found.zeroed) == ["r"]
    padded = padded_model(source, found)
    assert padded.inputs[-1].name == "autotune.valid/length"
    assert len(padded.nodes) == len(source.nodes) + 9  # the row of places, two masks of it, three choices
    assert source.nodes[0].proto.output[0] == "r"  # the model itself stays


@pytest.mark.parametrize(
    ("op", "fill"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceL2", 0.0), ("ReduceProd", 1.0)]
)
def test_reductions_over_it_get_what_changes_nothing(op: str, fill: float) -> None:
    found = padding(node(op, ["x"], ["y"], axes=[1]))
    (mask,) = found.masks.values()
    assert (mask.axes, mask.fill) == ((1,), fill)


def test_what_comes_in_order_or_first_may_be_padded_but_not_cut() -> None:
    for nodes in (
        [node("CumSum", ["x", "one"], ["y"])],
        [node("Gather", ["x", "zero"], ["y"], axis=1)],
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "ones"], ["n"]),
         node("Slice", ["table", "none", "n", "none"], ["t"]), node("Add", ["x", "t"], ["y"])],
    ):  # fmt: skip
        found = padding(*nodes)
        assert found.mixes and not found.masks


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("ReduceMean", ["x"], ["y"], axes=[1])], "how many"),
        ([node("CumSum", ["x", "one"], ["y"], reverse=1)], "from the end"),
        ([node("Gather", ["x", "one"], ["y"], axis=1)], "along the open dimension"),
        ([node("Concat", ["x", "x"], ["y"], axis=1)], "joins"),
        ([node("Reshape", ["x", "join"], ["y"])], "part of another"),
        ([node("Flatten", ["x"], ["y"], axis=2)], "part of another"),
        ([node("Slice", ["x", "none", "ones", "ones"], ["y"])], "cuts"),
        ([node("Softmax", ["x"], ["y"], axis=1)], "several"),
        ([node("Size", ["x"], ["n"]), node("Cast", ["n"], ["y"], to=1)], "nobody knows"),
        ([node("Shape", ["x"], ["s"]), node("Cast", ["s"], ["y"], to=1)], "extent of the open dimension"),
        ([node("Einsum", ["x"], ["y"], equation="bli->bl")], "nobody knows"),
        ([node("Conv", ["x", "w"], ["y"])], "several elements"),
        ([node("Squeeze", ["x"], ["y"])], "depends on the run"),
        ([node("Dropout", ["x"], ["y", "mask"])], "nobody knows"),
        ([node("Softmax", ["x"], ["y"], axis=99)], "range"),
    ],
)  # fmt: skip
def test_what_is_not_proved_is_refused(nodes: list[Node], why: str) -> None:
    opset = 11 if nodes[0].op_type == "Softmax" and nodes[0].attribute[0].i == 1 else 17
    with pytest.raises(CannotPad, match=why):
        padding(*nodes, opset=opset)


def test_rows_and_columns_of_one_dimension_are_not_independent() -> None:
    turn = node("Transpose", ["x"], ["t"], perm=[2, 1, 0])
    found = padding(node("ReduceMax", ["x"], ["r"], axes=[1, 2]), node("Transpose", ["r"], ["c"], perm=[2, 1, 0]),
                    node("Add", ["r", "c"], ["y"]), symbol="batch")  # fmt: skip
    assert found.mixes
    assert not padding(turn, node("Relu", ["t"], ["y"]), symbol="batch").mixes


def test_extents_read_as_numbers_are_those_without_padding() -> None:
    """What becomes a shape stays the padded one; who computes with it is told the other."""
    one = open_model(model([node("Shape", ["x"], ["s"], start=1, end=2), node("Mul", ["s", "s"], ["square"]),
                            node("Cast", ["square"], ["f"], to=1), node("Add", ["x", "f"], ["y"])]))  # fmt: skip
    found = padding_of(one, "length")
    assert {place: (told.elements, told.dtype, told.shape) for place, told in found.told.items()} == {
        (1, 0): (("length",), "i64", (1,)), (1, 1): (("length",), "i64", (1,)),
    }  # fmt: skip
    padded = padded_model(one, found)
    assert padded.inputs[-1].name == "autotune.valid/length"
    square = next(entry.proto for entry in padded.nodes if "square" in entry.proto.output)
    assert square.input[0] != "s" and len(set(square.input)) == 1


@pytest.mark.parametrize(
    ("op", "one", "other", "wanted"),
    [
        ("Add", ("n",), (2,), (total({"n": 1}, 2),)),
        ("Add", (total({"n": 1}, -2),), (2,), ("n",)),
        ("Add", ("n",), ("n",), (total({"n": 2}, 0),)),
        ("Sub", ("n",), (total({"n": 1}, -3),), (3,)),
        ("Sub", (5,), ("n",), (total({"n": -1}, 5),)),
        ("Sub", ("n",), ("m",), (total({"n": 1, "m": -1}, 0),)),
        ("Add", (total({"n": 1, "m": -1}, 0),), ("m",), ("n",)),
        ("Sub", (None,), ("m",), None),
        ("Mul", ("n", 2), (1,), ("n", 2)),
        ("Mul", ("n",), (2,), (total({"n": 2}, 0),)),
        ("Mul", ("n",), ("n",), None),
        ("Mul", (0,), (total({"n": 2}, 3),), (0,)),
        ("Div", (total({"n": 4, "m": -2}, 6),), (2,), (total({"n": 2, "m": -1}, 3),)),
        ("Div", (total({"n": 4}, 1),), (2,), None),
        ("Div", ("n",), (0,), None),
        ("Div", (6,), (2,), (3,)),
        ("Div", (7,), (2,), None),
        ("Equal", ("n", 3, "n"), (-1, 3, "n"), (0, 1, 1)),
        ("Equal", ("n",), (1,), None),
        ("Equal", (total({"n": 1}, -5),), (-1,), None),
    ],
)
def test_arithmetic_of_extents(
    op: str, one: tuple[Extent, ...], other: tuple[Extent, ...], wanted: tuple[Extent, ...] | None
) -> None:
    operands = [Fact((len(elements),), elements=elements) for elements in (one, other)]
    assert computed(op, operands) == wanted
    assert computed(op, [operands[0], Fact((1,))]) is None


NUMBER = {
    "GatherND": [node("Unsqueeze", ["n", "none"], ["deep"]), node("GatherND", ["table", "deep"], ["found"])],
    "Transpose": [node("Transpose", ["n"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "Reshape": [node("Reshape", ["n", "1x1"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "Flatten": [node("Flatten", ["n"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "ReduceMax": [node("ReduceMax", ["n"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "CumSum": [node("CumSum", ["n", "zero"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "Expand": [node("Expand", ["n", "1x1"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "Tile": [node("Tile", ["n", "ones"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "MatMul": [node("Unsqueeze", ["n", "none"], ["a"]), node("MatMul", ["a", "a"], ["t"]),
               node("Cast", ["t"], ["found"], to=1)],
    "ScatterND": [node("ScatterND", ["odd", "column1", "n"], ["t"]), node("Cast", ["t"], ["found"], to=1)],
    "Where": [node("Cast", ["n"], ["b"], to=9), node("Where", ["b", "n", "odd"], ["t"]),
              node("Cast", ["t"], ["found"], to=1)],
    "TopK": [node("TopK", ["n", "ones"], ["t", "u"]), node("Cast", ["t"], ["found"], to=1)],
    "Mul": [node("Shape", ["x"], ["s"]), node("Mul", ["s", "s"], ["t"]), node("ReduceSum", ["t"], ["u"]),
            node("Cast", ["u"], ["found"], to=1)],
    "Sub": [node("Shape", ["x"], ["s"], end=1), node("Sub", ["n", "s"], ["t"]), node("Mul", ["t", "two"], ["u"]),
            node("Cast", ["u"], ["found"], to=1)],
}  # fmt: skip


@pytest.mark.parametrize("op", NUMBER)
def test_whoever_reads_an_extent_as_a_number_reads_the_one_without_padding(op: str) -> None:
    """Or is refused: what an operator makes of the padded one may look like any other value from then on."""
    nodes = [node("Shape", ["x"], ["n"], start=1, end=2), *NUMBER[op], node("Add", ["x", "found"], ["y"])]
    source = open_model(model(nodes))
    try:
        padded = padded_model(source, padding_of(source, "length"))
    except CannotPad:
        return
    x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    wide = np.pad(x, ((0, 0), (0, 4), (0, 0)))
    exact = ReferenceEvaluator(onnx.load_from_string(model(nodes))).run(None, {"x": x})
    graph = helper.make_graph([entry.proto for entry in padded.nodes], "padded",
                              [helper.make_empty_tensor_value_info(declared.name) for declared in padded.inputs],
                              [helper.make_empty_tensor_value_info("y")],
                              [numpy_helper.from_array(a, n) for n, a in padded.initializers.items()])  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    feeds: dict[str, Any] = {"x": wide, valid_name("length"): np.asarray(5)}
    found = ReferenceEvaluator(made).run(None, {declared.name: feeds[declared.name] for declared in padded.inputs})
    np.testing.assert_allclose(np.asarray(next(iter(found)))[:, :5], np.asarray(next(iter(exact))), rtol=1e-6)


@pytest.mark.parametrize(("one", "wanted"), [(7, 3), (6, 3), (-7, None), (-6, -3)])
def test_what_is_left_over_of_integers_is_dropped(one: int, wanted: int | None) -> None:
    """Of floats it is not, and of negative integers operators do not agree where to."""
    operands = [Fact((1,), elements=(one,)), Fact((1,), elements=(2,))]
    assert computed("Div", operands, integers=True) == (None if wanted is None else (wanted,))


def test_a_quotient_in_a_shape_is_one_of_integers() -> None:
    nodes = [node("Div", ["odd", "two"], ["half"]), node("Slice", ["x", "none", "half", "two"], ["y"])]
    source = open_model(model(nodes))
    assert dimensions_of(source)["y"] == ("batch", "length", 3)


def test_what_is_repeated_is_not_the_open_dimension() -> None:
    assert padding(node("Tile", ["x", "along"], ["y"])).outputs == {"y": (1,)}
    assert not padding(node("Tile", ["x", "along"], ["y"])).mixes
    with pytest.raises(CannotPad, match="repeats"):
        padding(node("Tile", ["x", "along"], ["y"]), symbol="batch")


def test_types_of_what_a_scalar_looks_up() -> None:
    """A constant without dimensions keeps none: else what it looks up would seem to be of another rank."""
    source = open_model(model([node("Gather", ["x", "zero"], ["y"], axis=1)]))
    assert inferred_types(source)["y"] == ("f32", ("batch", 8))


def test_places_are_looked_up_that_are_no_padding() -> None:
    """Along the open dimension only where they are proved to be places of it, not whatever the run says."""
    count = [node("Shape", ["x"], ["s"], start=1, end=2), node("Squeeze", ["s"], ["n"]),
             node("Range", ["zero", "n", "one"], ["places"])]  # fmt: skip
    rows = [node("Gather", ["x", "zero"], ["rows"], axis=0), node("Unsqueeze", ["places", "ones"], ["deep"])]
    for lookup in (
        [node("Gather", ["x", "places"], ["y"], axis=1)],
        [*rows, node("GatherND", ["rows", "deep"], ["y"])],
    ):
        found = padding(*count, *lookup)
        assert found.mixes and not found.told
    with pytest.raises(CannotPad, match="along the open dimension"):
        padding(*count, node("Sub", ["places", "one"], ["before"]), node("Gather", ["x", "before"], ["y"], axis=1))


def test_new_rows_of_a_cache_begin_where_it_says() -> None:
    new = [node("Gather", ["x", "none"], ["row"], axis=1)]
    end = [node("Shape", ["x"], ["s"], start=1, end=2), node("Sub", ["s", "ones"], ["before"])]
    scatter = node("TensorScatter", ["x", "row", "before"], ["y"], axis=1)
    found = padding(*new, *end, scatter, opset=24)
    assert [told.elements for told in found.told.values()] == [(total({"length": 1}, -1),)]
    with pytest.raises(CannotPad, match="elsewhere"):
        padding(*new, *end, node("TensorScatter", ["x", "row", "s"], ["y"], axis=1), opset=24)


def test_slices_and_ranges_behind_what_came_before_are_picked() -> None:
    """`[n - 1, n)` is as long as it ever is, and its place is a number of the run."""
    ends = [node("Shape", ["x"], ["n"], start=1, end=2), node("Sub", ["n", "ones"], ["before"])]
    window = node("Slice", ["table", "before", "n", "none"], ["row"])
    found = padding(*ends, window, node("Add", ["x", "row"], ["y"]))
    assert {place: (axis, told.elements) for place, (axis, told) in found.picked.items()} == {
        2: (0, (total({"length": 1}, -1),))
    }
    assert found.ends
    numbers = [node("Squeeze", ["n"], ["last"]), node("Squeeze", ["before"], ["first"]),
               node("Range", ["first", "last", "one"], ["place"])]  # fmt: skip
    found = padding(*ends, *numbers, node("Gather", ["table", "place"], ["row"]), node("Add", ["x", "row"], ["y"]))
    assert [told.elements for told in found.told.values()] == [(total({"length": 1}, -1),)]
    last = padding(*ends, node("Slice", ["x", "before", "n", "ones"], ["y"]))  # of the open dimension itself
    assert [(axis, told.elements) for axis, told in last.picked.values()] == [(1, (total({"length": 1}, -1),))]
    assert last.outputs == {"y": ()}
    for start, end in (("two before", "n"), ("before", "before")):
        more = [*ends, node("Sub", ["before", "ones"], ["two before"])]
        with pytest.raises(CannotPad, match="computed"):  # two before the end of one: that counts from the end
            padding(*more, node("Slice", ["x", start, end, "ones"], ["y"]))


def test_the_last_elements_are_picked() -> None:
    """Those that are counted from the end, as exporters write the last token, in a shape of their own."""
    constants = {"last": np.asarray(-1), "few": np.asarray([[-1, -1]]), "far": np.asarray([2**31 - 1])}
    for lookup, shape in (
        (node("Gather", ["x", "last"], ["y"], axis=1), ()),
        (node("Gather", ["x", "few"], ["y"], axis=1), (1, 2)),
        (node("Gather", ["x", "minus"], ["y"], axis=1), (1,)),
        (node("Slice", ["x", "minus", "far", "ones"], ["y"]), (1,)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{__name__}.WEIGHTS", {**WEIGHTS, **constants})
            found = padding(lookup)
        ((axis, told),) = found.picked.values()
        assert (axis, set(told.elements), told.shape) == (1, {total({"length": 1}, -1)}, shape)
        assert found.ends and found.mixes and found.outputs == {"y": ()}
    for start, end in (("two before", "far"), ("minus", "two before"), ("minus", "ones")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{__name__}.WEIGHTS", {**WEIGHTS, **constants, "two before": np.asarray([-2])})
            source = open_model(model([node("Slice", ["x", start, end, "ones"], ["y"])]))
        with pytest.raises(CannotPad, match="cuts"):
            padding_of(source, "length")
        if end == "far":
            assert padding_of(source, "length", least=2).picked


def test_what_is_written_to_its_own_place_leaves_padding_where_it_is() -> None:
    places = [node("Shape", ["x"], ["s"], start=1, end=2), node("Squeeze", ["s"], ["n"]),
              node("Range", ["zero", "n", "one"], ["places"]), node("Unsqueeze", ["places", "ones"], ["where"]),
              node("Gather", ["x", "zero"], ["rows"], axis=0)]  # fmt: skip
    assert padding(*places, node("ScatterND", ["rows", "where", "rows"], ["y"])).mixes
    first = node("Mul", ["where", "none"], ["front"])
    with pytest.raises(CannotPad, match="writes along"):
        padding(*places, first, node("ScatterND", ["rows", "front", "rows"], ["y"]))


def test_what_is_written_along_two_axes_leaves_padding_where_it_is() -> None:
    """A square of scores: the index counts rows along one of its axes and columns along the other."""
    counts = [node("Shape", ["x"], ["s"], start=1, end=2), node("Squeeze", ["s"], ["n"]),
              node("Concat", ["s", "s"], ["square"], axis=0), node("Expand", ["number", "square"], ["scores"]),
              node("Range", ["zero", "n", "one"], ["places"]), node("Unsqueeze", ["places", "ones"], ["rows"]),
              node("Expand", ["rows", "square"], ["down"]), node("Expand", ["places", "square"], ["across"]),
              node("Unsqueeze", ["down", "two"], ["down3"]),
              node("Unsqueeze", ["across", "two"], ["across3"])]  # fmt: skip

    def written(first: str, second: str) -> Padding:
        pairs = node("Concat", [first, second], ["pairs"], axis=2)
        return padding(*counts, pairs, node("ScatterND", ["scores", "pairs", "scores"], ["y"]))

    assert written("down3", "across3").outputs == {"y": (0, 1)}
    assert written("across3", "down3").mixes  # each place is written once, too
    for same in ("down3", "across3"):  # a place is written by a whole row, padding included
        with pytest.raises(CannotPad, match="writes along"):
            written(same, same)


def test_what_is_empty_joins_nothing() -> None:
    found = padding_of(
        open_model(model([node("Concat", ["past", "x"], ["y"], axis=1)], more={"past": ("batch", 0, 8)})), "length"
    )
    assert found.outputs == {"y": (1,)} and not found.mixes


def test_ranges_of_other_open_dimensions_are_as_long_as_those() -> None:
    """Else what meets them would be of an extent that nobody knows."""
    nodes = [node("Shape", ["x"], ["s"], start=0, end=1), node("Squeeze", ["s"], ["n"]),
             node("Range", ["zero", "n", "one"], ["r"]), node("Cast", ["r"], ["f"], to=1),
             node("Reshape", ["f", "column"], ["c"]), node("Add", ["x", "c"], ["a"]),
             node("Shape", ["x"], ["all"]), node("Reshape", ["a", "all"], ["y"])]  # fmt: skip
    assert padding(*nodes).outputs == {"y": (1,)}


def test_what_lies_behind_the_padding_is_none() -> None:
    """Masks leave it as it is; who takes it away again has a dimension like any other."""
    joined = node("Concat", ["x", "row8"], ["j"], axis=1)
    found = padding(joined, node("ReduceMax", ["j"], ["t"], axes=[1]), node("Sub", ["j", "t"], ["s"]),
                    node("Slice", ["s", "none", "minus", "ones"], ["y"]))  # fmt: skip
    assert [(mask.axes, mask.behind) for mask in found.masks.values()] == [((1,), (1,))]
    assert found.outputs == {"y": (1,)}
    for nodes, why in (
        ([node("Identity", ["j"], ["y"])], "output 'y' lie behind"),
        ([node("Add", ["j", "x"], ["y"])], "of one and not of another"),
        ([node("Transpose", ["j"], ["y"], perm=[0, 2, 1])], "behind the padding"),
        ([node("ReduceMax", ["j"], ["y"], axes=[2])], "behind the padding"),
        ([node("Slice", ["j", "none", "two", "ones"], ["y"])], "a part of what"),
        ([node("Concat", ["j", "row8"], ["y"], axis=1)], "behind the padding"),
    ):
        with pytest.raises(CannotPad, match=why):
            padding(joined, *nodes)
    with pytest.raises(CannotPad, match="joins parts"):
        padding(node("Concat", ["row8", "x"], ["y"], axis=1))


MS = {"domain": "com.microsoft"}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
          helper.make_node("SkipLayerNormalization", ["t", "t", "row8"], ["y"], **MS)], "normalises over the open"),
        ([helper.make_node("SkipLayerNormalization", ["x", "x", "x"], ["y"], **MS)], "another input has"),
        ([helper.make_node("FusedMatMul", ["x", "x"], ["y"], transB=1, **MS)], "turns a matrix with the open"),
        ([helper.make_node("MultiHeadAttention", ["x", "x", "x"], ["y"], num_heads=1, **MS)], "another input has"),
        ([helper.make_node("DynamicQuantizeMatMul", ["x", "w", "one"], ["y"], **MS)], "its scale or its sums"),
        ([helper.make_node("Inverse", ["x"], ["y"], **MS)], "nobody knows"),
    ],
)  # fmt: skip
def test_what_operators_of_other_domains_do_not_prove(nodes: list[Node], why: str) -> None:
    with pytest.raises(CannotPad, match=why):
        padding(*nodes)


def test_operators_of_other_domains_along_others() -> None:
    found = padding(
        helper.make_node("QuickGelu", ["x"], ["g"], **MS),
        helper.make_node("SkipLayerNormalization", ["g", "x", "row8"], ["y"], **MS),
    )
    assert not found.mixes and not found.ends and found.outputs == {"y": (1,)}


def test_gates_are_those_of_their_rows() -> None:
    found = padding(
        helper.make_node("ScaledSiLU", ["x"], ["s"], **MS),
        node("ReduceMean", ["x"], ["m"], axes=[2]),
        helper.make_node("GatedAdd", ["x", "s", "m"], ["g"], **MS),
        helper.make_node("GatedRMSNorm", ["g", "eight", "x"], ["y"], **MS),
    )
    assert not found.mixes and not found.ends and found.outputs == {"y": (1,)}
    turned = [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
              helper.make_node("GatedRMSNorm", ["t", "eight", "t"], ["y"], **MS)]  # fmt: skip
    with pytest.raises(CannotPad, match="normalises over the open"):
        padding(*turned)
