"""Products with coded weights against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.ops import compute_def, parse_workload
from autotune.ops.coded import BYTES, NF4, WORDS, code_shift, code_values, codes_per_element
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate
from tests.search_spaces.coded_cases import coded


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("form", [*WORDS, *BYTES])
def test_against_numpy(form: str, zero: bool) -> None:
    """The last block goes beyond the sum: its codes do not count."""
    rng = np.random.default_rng(0)
    rows, columns, depth, block, blocks = 3, 5, 40, 16, 3
    workload = coded(rows, columns, depth, block, form, zero="f32" if zero else "")
    per = codes_per_element(form)
    a = rng.standard_normal((rows, depth)).astype(np.float32)
    scale = rng.uniform(0.5, 2, (blocks, columns)).astype(np.float32)
    points = rng.uniform(0, 3, (blocks, columns)).astype(np.float32)
    if per == 1:
        codes = rng.integers(0, 256, (blocks * block, columns)).astype(np.uint8).view(DType(form).numpy)
        values = codes.astype(np.float64)
    else:
        codes = rng.integers(0, 1 << 32, (blocks * block // per, columns), dtype=np.uint32)
        fields = np.stack([codes >> np.uint32(code_shift(form, n)) for n in range(per)], 1).reshape(-1, columns)
        values = np.array(code_values(form))[fields % len(code_values(form))]
    weight = (values - (np.repeat(points, block, 0) if zero else 0)) * np.repeat(scale, block, 0)
    given = {"in0": a, "in1": codes, "in2": scale} | ({"in3": points} if zero else {})
    found = evaluate(compute_def(workload), given, DType.f64)["out0"]
    np.testing.assert_allclose(found, a.astype(np.float64) @ weight[:depth], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["direct", "digits"])
@pytest.mark.parametrize("members", [1, 3])
def test_each_member_of_a_batch_is_a_product_of_its_own(members: int, algorithm: str) -> None:
    """All of them may read the same rows."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((members, 2, 40)).astype(np.float32)
    codes = rng.integers(0, 1 << 32, (3, 6, 5), dtype=np.uint32)
    scale, zero = (rng.uniform(0.5, 2, (3, 3, 5)).astype(np.float32) for _ in range(2))
    given = {"in0": a, "in1": codes, "in2": scale, "in3": zero}
    workload = coded(2, 5, 40, 16, "i4", zero="f32", batch="3,", first=f"{members},")
    found = evaluate(compute_def(workload, algorithm), given, DType.f64)["out0"]
    alone = compute_def(coded(2, 5, 40, 16, "i4", zero="f32"), algorithm)
    for n in range(3):
        own = {name: array[n % len(array)] for name, array in given.items()}
        np.testing.assert_array_equal(found[n], evaluate(alone, own, DType.f64)["out0"])


def test_what_codes_stand_for() -> None:
    assert code_values("i2") == (-2, -1, 0, 1) and code_values("u2") == (0, 1, 2, 3)
    assert code_values("i4")[0] == -8 and code_values("f4e2m1")[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert code_values("nf4") == NF4 and sorted(NF4) == list(NF4)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a=2,32 codes=4,5:u32 scale=2,5 block=16 format=i3", "format=i3 must be one of i4"),
        ("a=2,32 codes=4,5:u8 scale=2,5 block=16", "codes of i4 lie in u32, not u8"),
        ("a=2,32 codes=4,5:u32 scale=2,5 block=20", "blocks of 20 end within a word of 8"),
        ("a=2,32 codes=4,5:u32 scale=3,5 block=16", "3 scales for 32 elements in blocks of 16"),
        ("a=2,32 codes=5,5:u32 scale=2,5 block=16", r"codes of shape \(5, 5\), \(4, 5\) are needed"),
        ("a=2,32 codes=4,5:u32 scale=2,5 zero=1,5 block=16", "the zero points need the shape"),
        ("a=2,2,32 codes=3,4,5:u32 scale=3,2,5 block=16", r"a of shape \(2, 2, 32\) for a batch of \[3\] products"),
        ("a=3,2,32 codes=4,5:u32 scale=3,2,5 block=16", "codes"),
        ("a=2,32:i32 codes=4,5:u32 scale=2,5:f32 block=16", "needs floating-point numbers"),
    ],
)
def test_operands_that_do_not_fit(line: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        parse_workload(f"matmul_coded {line}")
