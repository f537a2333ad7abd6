"""Every illegal step is refused with a line that says what, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.errors import ScheduleError
from autotune.schedule import Schedule
from autotune.tensor import (
    ComputeDef,
    Layout,
    compute,
    compute_many,
    max_,
    maximum,
    placeholder,
    reduce_axis,
    scan,
    sum_,
)

Step = Callable[[Schedule], Schedule]


def relu_of_matmul() -> Schedule:
    a, b = placeholder((12, 6), name="A"), placeholder((6, 20), name="B")
    k = reduce_axis(6, "k")
    c = compute((12, 20), lambda i, j: sum_(a[i, k] * b[k, j], k), name="C")
    return Schedule(ComputeDef.build([a, b], [compute((12, 20), lambda i, j: maximum(c[i, j], 0.0), name="D")]))


def row_maximum() -> Schedule:
    a, k = placeholder((12, 6), name="A"), reduce_axis(6, "k")
    return Schedule(ComputeDef.build([a], [compute((12,), lambda i: max_(a[i, k], k), name="M")]))


def weights() -> Schedule:
    x = placeholder((12, 6), name="x", constant=True)
    return Schedule(ComputeDef.build([x], [compute((12, 6), lambda i, j: x[i, j] + 1.0, name="P")]))


def chain() -> Schedule:
    """x -> P -> Q -> R, elementwise."""
    x = placeholder((8, 9), name="x")
    p = compute((8, 9), lambda i, j: x[i, j] * 2.0, name="P")
    q = compute((8, 9), lambda i, j: p[i, j] + 1.0, name="Q")
    return Schedule(ComputeDef.build([x], [compute((8, 9), lambda i, j: q[i, j] * 3.0, name="R")]))


def large() -> Schedule:
    x = placeholder((2, 5000), name="x")
    p = compute((2, 5000), lambda i, j: x[i, j] * 2.0, name="P")
    return Schedule(ComputeDef.build([x], [compute((2, 5000), lambda i, j: p[i, j] + 1.0, name="Q")]))


def running() -> Schedule:
    x = placeholder((8, 9), name="x")
    return Schedule(ComputeDef.build([x], [scan((8, 9), 0, lambda before, t, j: before + x[t, j], name="S")]))


def pair() -> Schedule:
    x = placeholder((8,), name="x")
    lo, hi = compute_many((8,), lambda i: (x[i] - 1.0, x[i] + 1.0), ("lo", "hi"))
    return Schedule(ComputeDef.build([x], [compute((8,), lambda i: lo[i] * hi[i], name="M")]))


REFUSED: dict[str, tuple[Callable[[], Schedule], Step, str]] = {
    "unknown stage": (chain, lambda s: s.split("Z", "i", 2), "no stage 'Z'; stages: P, Q, R"),
    "unknown loop": (chain, lambda s: s.split("P", "k", 2), "stage P has no loop 'k'; it has i, j"),
    "unknown primitive": (chain, lambda s: s.then("splt", "P", "i", 2), "unknown primitive 'splt'; did you mean split"),
    "too few arguments": (chain, lambda s: s.then("split", "P"), "split.*missing a required argument: 'loop'"),
    "a fraction": (chain, lambda s: s.then("split", "P", "i", 2.5), "factor must be an integer, got 2.5"),
    "a truth": (chain, lambda s: s.then("split", "P", "i", True), "factor must be an integer, got True"),
    "split by zero": (chain, lambda s: s.split("P", "i", 0), "split P.i: factor 0 must be at least 1"),
    "split a marked loop": (chain, lambda s: s.unroll("P", "i").split("P", "i", 2), "already marked unroll"),
    "split a partitioned loop": (
        chain, lambda s: s.partition("P", "i").split("P", "i", 2), "already partitioned; split first"),
    "split a prefetching loop": (
        chain, lambda s: s.prefetch("P", "x", "i", 1).split("P", "i", 2), "already prefetches; split first"),
    "reorder names twice": (chain, lambda s: s.reorder("P", "i", "i"), "a loop is named twice"),
    "reorder by text": (chain, lambda s: s.then("reorder", "P", "i"), "loops must be a list of names"),
    "reorder parallel inwards": (
        chain, lambda s: s.parallel("P", "i").reorder("P", "j", "i"), "parallel loop i must stay outermost"),
    "reorder across lanes": (
        relu_of_matmul, lambda s: s.vectorize("C", "k").reorder("C", "k", "j"), "loops j must not be inside it"),
    "fuse strangers": (chain, lambda s: s.fuse("P", "j", "i"), "i must come directly inside j; reorder first"),
    "fuse space and reduction": (relu_of_matmul, lambda s: s.fuse("C", "j", "k"), "not both spatial or both reduce"),
    "fuse marked": (chain, lambda s: s.unroll("P", "j").fuse("P", "i", "j"), "fuse P.j: the loop is already marked"),
    "vectorize twice": (chain, lambda s: s.vectorize("P", "j").vectorize("P", "i"), "another loop is already vect"),
    "vectorize too much": (relu_of_matmul, lambda s: s.split("C", "i", 99).vectorize("C", "i.1"), "1..64; split"),
    "vectorize partitioned": (
        chain, lambda s: s.partition("P", "j").vectorize("P", "j"), "partitioned; its tail becomes a mask"),
    "vectorize around a placed stage": (
        relu_of_matmul, lambda s: s.compute_at("C", "D", "j").vectorize("D", "j"), "C is computed inside it"),
    "vectorize reduction outside": (relu_of_matmul, lambda s: s.reorder("C", "k", "i", "j").vectorize("C", "k"),
                                    "loops i, j must not be inside it; reorder"),
    "unroll too much": (relu_of_matmul, lambda s: s.split("C", "i", 999).unroll("C", "i.1"), "above 256; split"),
    "parallel inside": (chain, lambda s: s.parallel("P", "j"), "only the outermost loop can be shared"),
    "parallel reduction": (
        relu_of_matmul, lambda s: s.reorder("C", "k", "i", "j").parallel("C", "k"), "would race; use rfactor"),
    "parallel placed stage": (
        relu_of_matmul, lambda s: s.compute_at("C", "D", "i").parallel("C", "i"), "computed inside D, not at the top"),
    "parallel replicated stage": (
        chain, lambda s: s.replicate("P").parallel("P", "i"), "each thread computes the stage for itself"),
    "replicate behind others": (chain, lambda s: s.replicate("Q"), "each thread computes Q, but they have P together"),
    "replicate what is shared": (chain, lambda s: s.parallel("P", "i").replicate("P"), "threads share its loop"),
    "replicate an output": (chain, lambda s: s.inline("P").inline("Q").replicate("R"), "it is an output of the kernel"),
    "replicate a placed stage": (
        relu_of_matmul, lambda s: s.compute_at("C", "D", "i").replicate("C"), "computed inside D, by the thread"),
    "partition marked": (chain, lambda s: s.unroll("P", "i").partition("P", "i"), "only serial and shared loops are"),
    "pad maximum": (row_maximum, lambda s: s.pad("M", "k"), "no axis 'k' that can be padded; it has i"),
    "prefetch unread": (chain, lambda s: s.prefetch("R", "x", "i", 1), "does not read 'x'; it reads Q"),
    "prefetch now": (chain, lambda s: s.prefetch("P", "x", "i", 0), "distance 0 must be at least 1"),
    "stream unread": (chain, lambda s: s.stream("R", "x", "i"), "does not read 'x'; it reads Q"),
    "split a streaming loop": (
        chain, lambda s: s.stream("P", "x", "i").split("P", "i", 2), "already prefetches; split first"),
    "prefetch to nowhere": (chain, lambda s: s.prefetch("P", "x", "i", 1, 4), "caches are numbered 1 to 3, got 4"),
    "prefetch what is near": (
        chain, lambda s: s.compute_at("P", "Q", "i").prefetch("Q", "P", "j", 1), "what is computed nearby is near"),
    "place what is prefetched": (
        chain, lambda s: s.prefetch("Q", "P", "j", 1).compute_at("P", "Q", "i"), "Q prefetches it"),
    "inline reduction": (relu_of_matmul, lambda s: s.inline("C"), "inline C: it reduces"),
    "inline output": (chain, lambda s: s.inline("R"), "inline R: it is an output"),
    "inline scheduled": (chain, lambda s: s.split("P", "i", 2).inline("P"), "it has already been scheduled"),
    "inline scan": (running, lambda s: s.cache_read("x", "S").inline("S"), "inline S: it is a scan"),
    "inline two": (pair, lambda s: s.inline("lo"), "it has several outputs"),
    "inline a host": (
        chain, lambda s: s.compute_at("P", "Q", "i").inline("Q"), "P is computed inside Q; inline before compute_at"),
    "compute_at itself": (chain, lambda s: s.compute_at("P", "P", "i"), "inside itself"),
    "compute_at scope": (chain, lambda s: s.compute_at("P", "Q", "i", "global"), "scope 'global' is not"),
    "compute_at output": (chain, lambda s: s.compute_at("R", "Q", "i"), "it is an output; cache_write it"),
    "compute_at late": (
        chain, lambda s: s.split("P", "i", 2).compute_at("P", "Q", "i"), "schedule its loops after compute_at"),
    "compute_at elsewhere": (chain, lambda s: s.compute_at("P", "R", "i"), "Q also reads it, outside R.i"),
    "compute_at a deeper place than its reader": (
        chain, lambda s: s.compute_at("Q", "R", "i").compute_at("P", "R", "j"), "Q also reads it, outside R.j"),
    "compute_at under lanes": (
        relu_of_matmul, lambda s: s.vectorize("D", "j").compute_at("C", "D", "j"), "loop j of D is marked vectorize"),
    "compute_at for too many registers": (
        large, lambda s: s.compute_at("P", "Q", "i", "register"), "5000 elements do not fit registers; use scope"),
    "compute_at after its own producer": (
        chain, lambda s: s.compute_at("P", "Q", "i").compute_at("Q", "R", "j"), "compute_at P afterwards"),
    "split a host after compute_at": (
        relu_of_matmul, lambda s: s.compute_at("C", "D", "i").split("D", "i", 3), "stage D has no loop 'i'"),
    "widen what a placed stage must hold": (
        relu_of_matmul, lambda s: s.compute_at("C", "D", "i").reorder("D", "j", "i"), "compute_at C afterwards"),
    "cache_write scheduled": (chain, lambda s: s.split("P", "i", 2).cache_write("P"), "already been scheduled"),
    "cache_write scan": (running, lambda s: s.cache_write("S"), "it is a scan"),
    "cache_write two": (pair, lambda s: s.cache_write("lo"), "it has several outputs"),
    "cache_write a host": (
        chain, lambda s: s.compute_at("Q", "R", "i").cache_write("R"), "where R.c cannot read it"),
    "cache_read unread": (chain, lambda s: s.cache_read("x", "R"), "R does not read it"),
    "cache_read own state": (running, lambda s: s.cache_read("S", "S"), "the scan's own state"),
    "cache_read what is placed": (
        chain, lambda s: s.compute_at("P", "Q", "j").cache_read("P", "Q"), "where P.r cannot read it"),
    "rfactor no reduction": (chain, lambda s: s.rfactor("P", "i", 2), "it does not reduce"),
    "rfactor wrong axis": (relu_of_matmul, lambda s: s.rfactor("C", "i", 2), "no reduce axis 'i'; it has k"),
    "rfactor factor": (relu_of_matmul, lambda s: s.rfactor("C", "k", 7), "factor 7 is not in 1..6"),
    "rfactor keep": (relu_of_matmul, lambda s: s.rfactor("C", "k", 2, "all"), "keep 'all' is not"),
    "rfactor late": (relu_of_matmul, lambda s: s.unroll("C", "k").rfactor("C", "k", 2), "before scheduling its loops"),
    "layout of nothing": (chain, lambda s: s.layout("Z", Layout.row_major(2)), "no tensor 'Z'"),
    "layout rank": (chain, lambda s: s.layout("P", Layout.row_major(3)), "needs one pair per dimension"),
    "layout twice": (chain, lambda s: s.layout("P", Layout.blocked(2, [(0, 2), (0, 2)])), "dimension is blocked twice"),
    "layout uneven": (
        weights, lambda s: s.layout("x", Layout.blocked(2, [(0, 6), (0, 4)])), r"blocks of \[6\] are cut unevenly"),
    "layout larger inside": (
        weights, lambda s: s.layout("x", Layout.blocked(2, [(0, 2), (0, 4)])), r"blocks of \[2\] are cut unevenly"),
    "layout halo inside": (
        chain, lambda s: s.layout("P", Layout.row_major(2).with_halo(((1, 1), (0, 0)))), "only inputs and outputs"),
    "layout of garbage": (chain, lambda s: s.then("layout", "P", {"order": 3}), "layout P"),
    "layout negative block": (chain, lambda s: s.layout("P", Layout.blocked(2, [(1, -4)])), "negative block"),
    "scan backwards": (running, lambda s: s.split("S", "t", 2).reorder("S", "t.1", "t.0"), "must stay in order"),
    "scan in lanes": (running, lambda s: s.vectorize("S", "t"), "a scan's steps are sequential"),
    "scan in threads": (running, lambda s: s.parallel("S", "t"), "a scan's steps are sequential"),
    "scan fused": (running, lambda s: s.fuse("S", "t", "j"), "scan axis t cannot be fused"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, step, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message) as caught:
        step(make())
    assert "\n" not in str(caught.value)


STEPS = {
    "not JSON": ("nope", "not a list of schedule steps"),
    "no list": ("3", "not a list of schedule steps"),
    "an empty step": ("[[]]", "not a list of schedule steps"),
    "a number": ("[3]", "not a list of schedule steps"),
    "a name that is a list": ('[[["split"],"P","i",2]]', "not a list of schedule steps"),
    "an illegal step": ('[["split","P","i",2],["split","P","i",2]]', "stage P has no loop 'i'"),
}


@pytest.mark.parametrize("name", STEPS)
def test_stored_steps_are_checked_again(name: str) -> None:
    text, message = STEPS[name]
    with pytest.raises(ScheduleError, match=message):
        Schedule.replay(chain().compute, text)


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"compute":{},"steps":[]}', '{"compute":3,"steps":[]}', "{"])
def test_a_text_that_is_no_schedule(text: str) -> None:
    with pytest.raises(ScheduleError, match="not a schedule"):
        Schedule.from_json(text)
