"""Requests for cache lines: at the address of what is read later, for an instruction each."""

from __future__ import annotations

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, placeholder, reduce_axis, sum_


def test_an_address_takes_no_more_instructions_than_that_of_what_is_read_now() -> None:
    """What outer loops add to an address is added there: a request in the innermost loop is one instruction."""
    target = Target.parse("x86 -mcpu=haswell -num-cores=1")
    x, w = placeholder((8, 4, 6, 5), "f32", "in0"), placeholder((8, 4, 6, 5, 16), "f32", "in1", constant=True)
    axes = [reduce_axis(extent, name) for extent, name in zip((8, 4, 6, 5), "abcd")]
    total = compute((16,), lambda i: sum_(x[tuple(axes)] * w[(*axes, i)], tuple(axes)), name="T")
    out = compute((16,), lambda i: total[i] * 2, name="D")
    s = Schedule(ComputeDef.build([x, w], [out])).split("D", "i", 8).unroll("D", "i.0").vectorize("D", "i.1")
    s = s.split("T", "i", 8).reorder("T", "a", "b", "c", "d", "i.0", "i.1").unroll("T", "i.0").vectorize("T", "i.1")
    both = (s, s.prefetch("T", "in1", "d", 7))
    code = [assembly(generate(each, target).ir, cpu=target.cpu, features=target.llvm_features) for each in both]
    counts = [len([line for line in text.splitlines() if line.startswith("\t") and line[1] != "."]) for text in code]
    requests = code[1].count("\tprefetcht0")
    assert requests == 1  # two vectors lie on a line
    assert counts[1] - counts[0] <= 3  # it, and the sum that it shares with the loads
