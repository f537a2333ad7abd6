"""Operators as one line of text."""

from __future__ import annotations

import itertools

import pytest

from autotune.errors import WorkloadError
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, operators, parse_workload
from autotune.ops.registry import Needed, lookup
from autotune.ops.workload import AttrValue

NEEDED: dict[str, AttrValue] = {"to": "f32", "direction": "left", "axis": 1}
CONV = "conv2d data=1,64,56,56 weight=64,64,3,3"


def test_a_convolution_with_everything_left_out() -> None:
    expected = Workload(
        (WorkloadInput(TensorType("f32", (1, 64, 56, 56))), WorkloadInput(TensorType("f32", (64, 64, 3, 3)), True)),
        (WorkloadNode.make("conv2d", (0, 1), stride=(1, 1), pad=(1, 1, 1, 1), dilation=(1, 1), groups=1),),
        (2,),
    )
    assert parse_workload(f"{CONV} pad=1") == expected
    assert parse_workload(f"{CONV} pad=1,1") == expected
    assert parse_workload("conv2d data=1x64x56x56 weight=64x64x3x3 pad=1,1,1,1 groups=1 dtype=f32") == expected
    assert parse_workload("conv2d pad=1 weight=64,64,3,3 data=1,64,56,56").key == expected.key


@pytest.mark.parametrize("line", [f"{CONV} pad=1 + bias + residual + relu", f"{CONV} pad=1 bias residual relu",
                                  f"{CONV} pad=1 + add b=const:1,64,1,1 + add + relu"])  # fmt: skip
def test_epilogues(line: str) -> None:
    workload = parse_workload(line)
    assert [n.op for n in workload.nodes] == ["conv2d", "add", "add", "relu"]
    assert [n.inputs for n in workload.nodes] == [(0, 1), (4, 2), (5, 3), (6,)]
    bias, residual = workload.inputs[2:]
    assert (bias.type.shape, bias.constant) == ((1, 64, 1, 1), True)
    assert (residual.type.shape, residual.constant) == ((1, 64, 56, 56), False)
    assert workload.outputs == (7,)
    assert workload.anchor_key == parse_workload(f"{CONV} pad=1").key


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (f"{CONV} stride=2 pad=1", "f32[1,64,28,28]"),
        ("matmul a=128,768 b=768,3072 + bias + gelu approximate=tanh", "f32[128,3072]"),
        ("matmul a=12,128,64 b=var:12,128,64 trans_b=true dtype=bf16", "bf16[12,128,128]"),
        ("softmax data=64,1000", "f32[64,1000]"),
        ("relu data=scalar", "f32[]"),
        ("add a=1,64,56,56 b=1,64,1,1", "f32[1,64,56,56]"),
        ("where condition=5,1 a=5,7 b=5,7", "f32[5,7]"),
        ("gather data=const:100,8 indices=2,3", "f32[2,3,8]"),
        ("gather data=const:100,8 indices=2,3:i32", "f32[2,3,8]"),
        ("argmax data=64,1000 axis=-1 keepdims=false", "i64[64]"),
        ("reduce_mean data=1,2048,7,7 axes=-2,-1", "f32[1,2048,1,1]"),
        ("reduce_sum data=3,4", "f32[1,1]"),
        ("max_pool data=1,64,112,112 kernel=3 stride=2 pad=1", "f32[1,64,56,56]"),
        ("avg_pool data=1,64,8,8 kernel=2 stride=2 count_include_pad=1", "f32[1,64,4,4]"),
        ("concat data=1,64,8,8 data=1,32,8,8 data=1,1,8,8", "f32[1,97,8,8]"),
        ("cumsum data=3,4 dtype=i32", "i32[3,4]"),
        ("transpose data=2,3,4 perm=2,0,1", "f32[4,2,3]"),
        ("lrn data=1,96,55,55 alpha=1e-3", "f32[1,96,55,55]"),
        ("cast data=3 to=f16 + mul b=const:3", "f16[3]"),
        ("conv2d data=1,8,8,8 weight=8,8,3,3 dtype=i8", "i32[1,8,6,6]"),
    ],
)
def test_many_operators(line: str, result: str) -> None:
    workload = parse_workload(line)
    assert str(workload.types()[-1]) == result
    assert Workload.from_json(workload.to_json()) == workload


def test_negative_axes_give_the_key_of_positive_ones() -> None:
    assert parse_workload("softmax data=4,5 axis=-1").key == parse_workload("softmax data=4,5 axis=1").key


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "empty operator description"),
        ("data=3", "stands before the operator"),
        ("conv2 data=1,64,56,56", "unknown operator 'conv2'; did you mean conv2d?"),
        (f"{CONV} + reluu", "unknown operator 'reluu'; did you mean relu?"),
        (f"{CONV} pads=1", "no operand or attribute 'pads'; did you mean pad?"),
        (f"{CONV} stride=two", "stride=two is not a list of integers"),
        (f"{CONV} pad=1,2,3", "pad=1,2,3 must be 4 integers"),
        (f"{CONV} pad=-1", "must be at least 0"),
        (f"{CONV} groups=1,2", "groups=1,2 must be one integer"),
        (f"{CONV} pad=1 pad=2", "pad is given twice"),
        (f"{CONV} data=1", "data is given twice"),
        (f"{CONV} dtype=float32", "unknown dtype 'float32'; did you mean f32?"),
        ("conv2d data=1,64,56,56", "needs the shape of weight"),
        ("conv2d data=1,64,y,56 weight=64,64,3,3", "data=1,64,y,56 is not a list of integers"),
        ("conv2d data=1,64,56,56 weight=64,32,3,3", "data has 64 channels"),
        ("conv2d data=1,64,-56,56 weight=64,64,3,3", "impossible extent -56"),
        ("conv2d data=1,64,56,56 weight=64,64,3,3 + bias b=3", "bias takes no words"),
        ("softmax data=3 + bias", "bias follows a convolution or matmul"),
        ("relu data=3 + relu data=3", "nothing reads the result of step 1 (relu)"),
        ("max_pool data=1,1,4,4", "needs kernel; write for example kernel=3,3"),
        ("reduce_sum data=3 keepdims=maybe", "keepdims=maybe must be true or false"),
        ("leaky_relu data=3 alpha=steep", "alpha=steep is not a number"),
        ("softmax data=3,4 axis=2", "axis=2 is outside"),
    ],
)
def test_mistakes_get_one_line(line: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse_workload(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_operator_names_its_operands() -> None:
    for name in operators():
        op = lookup(name)
        assert op.operands or name == "cosine_window", name  # made of positions alone
        assert op.weights <= set(op.operands), name


@pytest.mark.parametrize(
    ("line", "inputs", "outputs"),
    [
        ("sigmoid data=1,8 + mul b=in0", [(0,), (1, 0)], (2,)),
        ("sigmoid data=1,8 + mul a=in0 b=step1", [(0,), (0, 1)], (2,)),
        ("relu data=3 + exp data=3 + add a=step1 b=step2", [(0,), (1,), (2, 3)], (4,)),
        ("exp data=3 + concat data=in0 data=step1 axis=0", [(0,), (0, 1)], (2,)),
        ("top_k data=3,4 k=2 + top_k data=in0 k=2 result=1 -> step1,step2", [(0,), (0,)], (1, 2)),
    ],
)
def test_values_by_name(line: str, inputs: list[tuple[int, ...]], outputs: tuple[int, ...]) -> None:
    workload = parse_workload(line)
    assert [n.inputs for n in workload.nodes] == inputs
    assert workload.outputs == outputs
    assert workload.describe() == line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mul a=3 b=in1", "in1 names no value; there are in0"),
        ("relu data=3 + mul b=step2", "step2 names no value; there are in0, step1"),
        ("relu data=3 -> step4", "step4 names no value"),
        ("relu data=3 -> y", "y names no value"),
    ],
)
def test_names_of_nothing(line: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_workload(line)


def test_attributes_of_any_number_of_dimensions() -> None:
    line = parse_workload("max_pool data=1,8,100 kernel=3 stride=2 pad=1")
    assert line.nodes[0].attr("pad") == (1, 1) and line.types()[-1].shape == (1, 8, 50)
    cube = parse_workload("avg_pool data=1,8,9,9,9 kernel=3")
    assert cube.nodes[0].attr("dilation") == (1, 1, 1) and cube.types()[-1].shape == (1, 8, 7, 7, 7)


def test_a_new_axis_counts_in_the_result() -> None:
    assert parse_workload("one_hot indices=3 values=2 depth=5 axis=-1").types()[-1].shape == (3, 5)


ROUND_TRIPS = (
    "lstm data=5,2,32 weight=2,16,4 direction=bidirectional",
    "gru data=5,2,24 weight=2,12,4 e0=2,2,4 direction=bidirectional extras=initial_h",
    "rnn data=5,2,8 weight=2,4,4 direction=bidirectional activations=relu,tanh",
    "rnn data=5,2,8 weight=2,4,4 direction=bidirectional activations=affine,affine alphas=0.5,0.25 betas=1.0,1.5",
    "pad data=1,2:i64 pads=1,0,0,1 value=4611686018427387905",
    "pad data=3 pads=1,2 value=0.1",
    "reduce_sum data=2,3,4 axes=",
    "reshape data=1 shape=",
    "resize data=1,3,4,4 sizes=1,3,8,6 scales=1.0,1.0,2.0,1.5 mode=linear",
    "col2im data=1,5,5 image=5,5 kernel=1,5",
    "col2im data=2,6,3 image=4 kernel=2 dilation=1",
    "einsum data=3,4 data=4,5 equation=ij,jk->ik",
    "attention q=1,2,5,8 k=1,2,5,8 v=1,2,5,8 mask=5,5:bool kv_heads=2 q_heads=2 extras=mask window=3,-1",
    "clip data=4 min=-inf max=6.0",
    "where condition=5,1 a=5,7 b=5,7",
    "gather data=const:30522,768 indices=1,128:i32",
    "relu data=scalar",
    "conv3d data=1,4,5,6,7 weight=var:8,4,3,3,3 pad=1,0,1 stride=2,1,1",
    f"{CONV} pad=1 + bias + residual + relu",
    f"{CONV} pad=1 dtype=f16 + mul b=const:64,1,1:f16 + cast to=f32",
    "matmul a=128,768:bf16 b=768,3072:bf16 + bias + gelu approximate=tanh",
    "conv2d data=1,8,8,8:u8 weight=8,8,3,3:i8 + cast to=f32",
)


@pytest.mark.parametrize("line", ROUND_TRIPS)
def test_what_describe_writes_is_read(line: str) -> None:
    workload = parse_workload(line)
    again = parse_workload(workload.describe())
    assert again == workload
    assert again.key == workload.key  # ints stay ints and floats floats
    assert again.describe() == workload.describe()


@pytest.mark.parametrize("name", [name for name in operators() if lookup(name).elementwise])
def test_elementwise_operators_are_written_and_read(name: str) -> None:
    op = lookup(name)
    said = {key: value for key, value in op.defaults.items() if key not in op.rare}
    attrs = {key: NEEDED[key] if isinstance(value, Needed) else value for key, value in said.items()}
    node = WorkloadNode.make(name, range(len(op.operands)), **attrs)
    for dtypes in itertools.product(("f32", "bool", "u8", "i32"), repeat=len(op.operands)):
        types = (
            TensorType("i64", ()) if operand == "end" else TensorType(dtype, (2, 3))
            for operand, dtype in zip(op.operands, dtypes)
        )
        workload = Workload(tuple(map(WorkloadInput, types)), (node,), (len(dtypes),))
        try:
            line = workload.describe()
        except WorkloadError:  # not of these types
            continue
        assert parse_workload(line) == workload
        return
    raise AssertionError(f"no dtypes suit {name}")


def test_describe_leaves_out_what_is_usual() -> None:
    text = parse_workload(f"{CONV} pad=1,1,1,1 stride=2,1 groups=1 + add b=const:1,64,1,1 + relu").describe()
    assert text == f"{CONV} pad=1 stride=2,1 + bias + relu"
