"""Operators that are written down once give what their definitions give, for any extents that there is room for."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autotune.compiler.host import run_on_host
from autotune.compiler.native_rows import MAKERS, Dims, NotNative, RowMemory, RowMoves, Rows
from autotune.errors import InputError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.ir import Array
from autotune.runtime.address import address
from autotune.runtime.shape_use import ShapeUse

MOST = 8
DTYPES = [np.bool_, np.int8, np.float16, np.float32, np.int64, np.float64]
F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


def node(op: str, reads: int = 2, **attributes: Any) -> NodeAttributes:
    proto = helper.make_node(op, ["x", "y", "z"][:reads], ["found"], name="mover", **attributes)
    return NodeAttributes(proto, 18, None)


def moves(once: Sequence[str] = (), take: RowMemory | None = None) -> RowMoves:
    """`once`: names that are read by one operator alone."""
    reads = Counter({name: 1 if name in once else 2 for name in "xyz"})
    return RowMoves({"n": MOST, "m": MOST}, reads, (take or RowMemory()).take)


class Written:
    """An operator on values whose extents are symbols."""

    def __init__(self, one: NodeAttributes, dims: Sequence[Dims | Array], dtypes: Sequence[np.dtype[Any]]) -> None:
        self.node, self.rows = one, moves()
        self.given = [
            self.rows.constant(d) if isinstance(d, np.ndarray) else self.rows.given(name, d, dtype)
            for name, d, dtype in zip("xyz", dims, dtypes)
        ]
        self.found = self.rows.add(one, self.given)

    def run(self, extents: Mapping[str, int], values: Sequence[Array]) -> Array | None:
        for symbol, extent in extents.items():
            self.rows.symbols[symbol].value = extent
        for rows, value in zip(self.given, values):
            assert value.flags.c_contiguous
            rows.cell.value = address(value)
        if not self.rows.moves.run():
            return None
        shape = [extents[dim] if isinstance(dim, str) else dim for dim in self.found.dims]
        if isinstance(self.found.lies, np.ndarray):
            assert self.found.cell.value == address(self.found.lies)
            size = int(np.prod(shape, dtype=np.int64)) * self.found.dtype.itemsize
            return self.found.lies[:size].view(self.found.dtype).reshape(shape)
        assert self.found.cell is self.given[0].cell  # the same memory
        return values[0].reshape(shape)

    def check(self, extents: Mapping[str, int], values: Sequence[Array]) -> None:
        """It gives what its definition gives, or is refused where that is."""
        found = self.run(extents, values)
        try:
            (wanted,) = run_on_host(self.node, values)
        except InputError as error:
            complaint = str(error)
        else:
            complaint = ""
        if complaint:
            assert found is None and complaint.startswith("node 'mover'") and "is outside of" in complaint
            return
        assert found is not None and isinstance(wanted, np.ndarray) and found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted, strict=True)


counts = st.sampled_from([0, 1, 2, MOST])
seeds = st.integers(0, 2**32)


def drawn(rng: np.random.Generator, shape: Sequence[int], dtype: type) -> Array:
    array: Array = rng.integers(-9, 9, tuple(shape)).astype(dtype)
    return array


def places(rng: np.random.Generator, shape: Sequence[int], extent: int, outside: int) -> Array:
    found = rng.integers(-extent, max(extent, 1 - extent), tuple(shape))
    if outside and found.size:
        found.reshape(-1)[rng.integers(found.size)] = extent if outside == 1 else -extent - 1
    return found


outsides = st.sampled_from([0, 0, 0, 1, 2])


@settings(max_examples=60, deadline=None)
@given(seed=seeds, n=counts, m=counts, form=st.sampled_from([("m",), ("m", 2), (), (3,)]), outside=outsides,
       dtype=st.sampled_from(DTYPES), axis=st.sampled_from([0, -2]))  # fmt: skip
def test_gather(seed: int, n: int, m: int, form: Dims, outside: int, dtype: type, axis: int) -> None:
    rng, sizes = np.random.default_rng(seed), {"n": n, "m": m}
    written = Written(node("Gather", axis=axis), [("n", 3), form], [np.dtype(dtype), I64])
    at = places(rng, [sizes[d] if isinstance(d, str) else d for d in form], n, outside)
    written.check(sizes, [drawn(rng, (n, 3), dtype), at])


@settings(max_examples=40, deadline=None)
@given(seed=seeds, n=counts, number=st.sampled_from([0, 1, -1, -2, 2]))
def test_gather_of_one_row_that_is_always_the_same(seed: int, n: int, number: int) -> None:
    """A number has no axis, a list of one has one."""
    rng = np.random.default_rng(seed)
    for constant in (np.asarray(number), np.asarray([number])):
        written = Written(node("Gather"), [(2, "n"), constant], [I64, I64])
        assert written.found.dims == (*constant.shape, "n")
        written.check({"n": n}, [drawn(rng, (2, n), np.int64), constant])


@settings(max_examples=60, deadline=None)
@given(seed=seeds, n=counts, m=counts, rank=st.sampled_from([1, 2]), outside=outsides, dtype=st.sampled_from(DTYPES))
def test_gather_nd(seed: int, n: int, m: int, rank: int, outside: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    written = Written(node("GatherND"), [("n", 3), ("m", rank)], [np.dtype(dtype), I64])
    columns = [places(rng, (m,), extent, outside * (k == 0)) for k, extent in enumerate((n, 3)[:rank])]
    written.check({"n": n, "m": m}, [drawn(rng, (n, 3), dtype), np.ascontiguousarray(np.stack(columns, -1))])


@settings(max_examples=80, deadline=None)
@given(seed=seeds, n=counts, m=counts, rank=st.sampled_from([1, 2]), outside=outsides, dtype=st.sampled_from(DTYPES),
       adds=st.booleans())  # fmt: skip
def test_scatter_nd(seed: int, n: int, m: int, rank: int, outside: int, dtype: type, adds: bool) -> None:
    rng = np.random.default_rng(seed)
    one = node("ScatterND", 3, **({"reduction": "add"} if adds else {}))
    forms: list[Dims] = [("n", 3), ("m", rank), ("m", 3)[: 3 - rank]]
    if adds and np.dtype(dtype) not in (F32, np.dtype(np.float64), I64, np.dtype(np.int32)):
        with pytest.raises(NotNative):
            Written(one, forms, [np.dtype(dtype), I64, np.dtype(dtype)])
        return
    written = Written(one, forms, [np.dtype(dtype), I64, np.dtype(dtype)])
    columns = [places(rng, (m,), extent, outside * (k == 0)) for k, extent in enumerate((n, 3)[:rank])]
    x, more = drawn(rng, (n, 3), dtype), drawn(rng, (m, 3)[: 3 - rank], dtype)
    before = x.copy()
    written.check({"n": n, "m": m}, [x, np.ascontiguousarray(np.stack(columns, -1)), more])
    np.testing.assert_array_equal(x, before)


def test_what_nobody_else_reads_is_written_over() -> None:
    for alone in (True, False):
        rows = moves("x" if alone else "")
        x = rows.add(node("Gather"), [rows.given("w", ("n", 3), F32), rows.given("v", ("n",), I64)])
        more = [rows.given("y", ("m", 1), I64), rows.given("z", ("m", 3), F32)]
        found = rows.add(node("ScatterND", 3), [x, *more])
        assert (found.cell is x.cell) == alone
        view = rows.add(node("Unsqueeze"), [x, rows.constant(np.asarray([0]))])
        assert not rows.read_once(view, "x")  # it has another name


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n=counts, dtype=st.sampled_from([np.int64, np.float64]))
def test_transpose(seed: int, n: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    for attributes in ({}, {"perm": [1, 0]}):
        written = Written(node("Transpose", 1, **attributes), [(3, "n")], [np.dtype(dtype)])
        written.check({"n": n}, [drawn(rng, (3, n), dtype)])


@pytest.mark.parametrize(
    ("op", "dims", "argument", "wanted"),
    [
        ("Reshape", (1, "n"), [-1], ("n",)),
        ("Reshape", ("n",), [-1, 1], ("n", 1)),
        ("Reshape", ("n", 4), [0, 2, -1], ("n", 2, 2)),
        ("Reshape", ("n", 4), [0, 4], ("n", 4)),
        ("Reshape", ("n", 2, 3), [-1, 6], ("n", 6)),
        ("Reshape", ("n", 3), [3, -1], (3, "n")),
        ("Reshape", (2, 3), [3, -1], (3, 2)),
        ("Squeeze", (1, "n", 1), [0, -1], ("n",)),
        ("Unsqueeze", ("n", 3), [-1, 1], ("n", 1, 3, 1)),
        ("Unsqueeze", (), [0], (1,)),
    ],
)
def test_other_shapes_of_the_same_memory(op: str, dims: Dims, argument: list[int], wanted: Dims) -> None:
    written = Written(node(op), [dims, np.asarray(argument)], [F32, I64])
    assert written.found.dims == wanted
    for n in (1, 2, MOST):
        shape = [n if isinstance(dim, str) else dim for dim in dims]
        written.check({"n": n}, [np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.asarray(argument)])


def test_other_shapes_of_constants_are_known() -> None:
    rows = moves()
    found = rows.add(node("Reshape"), [rows.constant(np.arange(6)), rows.constant(np.asarray([2, -1]))])
    np.testing.assert_array_equal(found.known, [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("one", "dims"),
    [
        (node("Relu", 1), [("n",)]),
        (node("Gather", axis=1), [("n", 3), ("m",)]),
        (node("Gather"), [(), ("m",)]),
        (node("GatherND", batch_dims=1), [("n", 3), ("n", 1)]),
        (node("GatherND"), [("n", 3), ("m", "n")]),
        (node("GatherND"), [("n", 3), ("m", 3)]),
        (node("GatherND"), [("n", 3), ("m", 0)]),
        (node("ScatterND", 3), [("n", 3), ("m", 1), ("n", 3)]),
        (node("ScatterND", 3, reduction="max"), [("n", 3), ("m", 1), ("m", 3)]),
        (node("Transpose", 1, perm=[0, 1]), [("n", 3)]),
        (node("Transpose", 1), [("n", 3, 1)]),
        (node("Reshape"), [("n", 3), np.asarray([-1])]),  # a product of both
        (node("Reshape"), [("n", 3), np.asarray([4, 3])]),
        (node("Reshape"), [("n", 3), np.asarray([0, 0, 0])]),
        (node("Reshape"), [("n", 3), ("m",)]),
        (node("Reshape", allowzero=1), [("n", 3), np.asarray([0, 3])]),
        (node("Squeeze"), [("n", 1), np.asarray([0])]),
        (node("Squeeze", 1), [("n", 1)]),
        (node("Squeeze"), [("n", 1), np.asarray([2])]),
        (node("Unsqueeze"), [("n",), np.asarray([0, -3])]),
        (node("Unsqueeze"), [("n",), ("m",)]),
    ],
)
def test_what_is_left_to_others(one: NodeAttributes, dims: Sequence[Dims | Array]) -> None:
    with pytest.raises(NotNative):
        Written(one, dims, [F32 if n != 1 else I64 for n in range(3)])


def test_places_of_other_types_and_domains_are_left_to_others() -> None:
    with pytest.raises(NotNative):
        Written(node("Gather"), [("n", 3), ("m",)], [F32, np.dtype(np.int32)])
    with pytest.raises(NotNative):
        Written(node("Gather", domain="mine"), [("n", 3), ("m",)], [F32, I64])
    with pytest.raises(NotNative):
        Written(node("ScatterND", 3), [("n", 3), ("m", 1), ("m", 3)], [F32, I64, np.dtype(np.float64)])
    with pytest.raises(NotNative):
        Written(node("Transpose", 1), [("n", 3)], [F32])
    assert "Relu" not in MAKERS


def test_what_is_too_large_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.compiler.native_rows.MOST_BYTES", MOST * 3 * 4)
    dims: list[Dims] = [("n", 3), ("m",)]
    assert Written(node("Gather"), dims, [F32, I64]).rows.nbytes == MOST * 3 * 4
    with pytest.raises(NotNative):
        Written(node("Gather"), [("n", 4), ("m",)], [F32, I64])


def gathered(rows: RowMoves) -> Rows:
    return rows.add(node("Gather"), [rows.given("x", ("n", 3), F32), rows.given("y", ("m",), I64)])


def test_all_memory_of_a_session_is_counted_as_long_as_it_is_there() -> None:
    memory, each = RowMemory(2 * MOST * 12), MOST * 12
    first = moves(take=memory)
    gathered(first)
    assert first.nbytes == each
    assert memory.uses() == [ShapeUse({"x": (MOST, 3), "y": (MOST,)}, 0, 0.0, 0, 0, each)]
    second = moves(take=memory)
    gathered(second)
    with pytest.raises(NotNative):
        gathered(second)
    assert sorted(use.arena_bytes for use in memory.uses()) == [each, each]
    gc.disable()  # nothing waits for that
    try:
        del first
        assert len(memory.uses()) == 1
        gathered(second)
    finally:
        gc.enable()


def test_what_else_a_run_takes_counts(caplog: pytest.LogCaptureFixture) -> None:
    memory, rows = RowMemory(1000), moves()
    memory.take(rows, 400, 600)
    caplog.set_level("INFO")
    with pytest.raises(NotNative):
        memory.take(rows, 1, 600)
    assert caplog.messages == [
        "rows are moved operator by operator: natively, a run would take 1001 bytes, more than the 1000 that max_memory"
        " allows"
    ]
    memory.take(rows, 1, 599)
    RowMemory().take(rows, 2**60, 2**60)  # nobody bounds it
