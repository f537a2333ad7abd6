"""The attention template: right for awkward workloads, chosen where it is better, refused where it cannot."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from autotune.codegen.kernel import build_kernel
from autotune.lower import lower
from autotune.lower.ir import REGISTER, For, If, Load, Store, expressions, statements
from autotune.measure.bench import Bench, TaskData
from autotune.measure.reference import Errors, make_reference
from autotune.measure.verify import verify
from autotune.ops import parse_workload
from autotune.runtime.threads import ThreadPool
from autotune.schedule.state import UNROLL, VECTORIZE
from autotune.search_spaces import Config, default_config, make_schedule, templates_for
from autotune.search_spaces.space.registry import lookup
from autotune.target import Target
from autotune.tensor.linear import Linear
from tests.search_spaces.attention_cases import random_attention
from tests.search_spaces.matmul_cases import check, wrong
from tests.targets import fixed

NAME = "attention.blocks"
HOST, HASWELL = Target.parse("native -num-cores=2"), Target.parse("x86 -mcpu=haswell -num-cores=2")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("seed", range(6))
def test_random_configs(seed: int, dtype: str) -> None:
    rng = random.Random(seed)
    target, workload = rng.choice((HOST, HASWELL)), random_attention(rng, dtype)
    entry = lookup(NAME)
    assert entry.applies(workload, target)
    config = entry.default(workload, target) if seed % 3 == 0 else entry.space(workload, target).sample(rng)
    check(workload, config.replace(template=NAME), target)


@pytest.mark.parametrize("target", [HOST, HASWELL], ids=["native", "haswell"])
@pytest.mark.parametrize("share", ["heads", "blocks"])
def test_a_last_block_with_few_queries(share: str, target: Target) -> None:
    """Five, of the two vectors that a block has: its second is left out, its first is not full."""
    workload = parse_workload(
        "attention q=1,69,2,64 k=1,50,2,64 v=1,50,2,64 q_heads=2 kv_heads=2 order=bshd,bshd,bshd,bshd"
    )
    config = Config.of(template=NAME, queries=2, keys=6, rows=4, columns=2, share=share)
    failure = wrong(workload, make_schedule(workload, config, target), target)
    assert failure is None, str(failure)


@pytest.mark.parametrize("keys", [24, 25])
def test_pairs_of_bf16_are_folded_by_an_instruction(keys: int) -> None:
    """Features of a score, and keys of a value, of which the last may be alone."""
    workload = parse_workload(
        f"attention q=1,20,2,32:bf16 k=1,{keys},2,32:bf16 v=1,{keys},2,32:bf16 q_heads=2 kv_heads=2 "
        "order=bshd,bshd,bshd,bshd"
    )
    znver4 = Target.parse("x86 -mcpu=znver4 -num-cores=1")
    for target, folding in ((znver4, True), (HASWELL, False)):
        program = lower(make_schedule(workload, default_config(workload, target), target))
        loops = {x.var for x in statements(program.body) if isinstance(x, For) and x.mark == "vdpbf16ps"}
        assert {x.split(".")[0] for x in loops} == ({"attention_products", "attention_values"} if folding else set())
    check(workload, default_config(workload, HOST), HOST)
    with Bench(build_kernel(make_schedule(workload, default_config(workload, HOST), HOST), HOST),
               TaskData(make_reference(workload)), 1) as bench, ThreadPool(1) as pool:  # fmt: skip
        errors = verify(bench, [pool])
    assert isinstance(errors, Errors) and errors.max_rel_err < 0.01


def test_heads_of_queries_keys_and_values_in_one_tensor() -> None:
    """Only the block's queries are copied, whatever else lies in their tensor."""
    attention = parse_workload(
        "attention q=1,40,6,16 k=1,40,6,16 v=1,40,6,16 q_heads=2 kv_heads=2 first=0,2,4 order=bshd,bshd,bshd,bshd"
    )
    node = replace(attention.nodes[0], inputs=(0, 0, 0))
    workload = replace(attention, inputs=attention.inputs[:1], nodes=(node,), outputs=(1,))
    config = default_config(workload, HOST)
    check(workload, config, HOST)
    copies = [x for x in lower(make_schedule(workload, config, HOST)).buffers if x.name == "in0.r"]
    assert [math.prod(x.shape) for x in copies] == [16 * min(40, config.get_int("queries") * HOST.lanes(4))]


@pytest.mark.parametrize("order", ["bhsd", "bshd"])
def test_a_number_is_not_loaded_for_every_multiply_add(order: str) -> None:
    """With few registers a tile of values one row high would broadcast a number for each vector that it multiplies."""
    extents = {"b": 1, "h": 12, "s": 128, "d": 64}
    shape, orders = ",".join(str(extents[x]) for x in order), ",".join([order] * 4)
    workload = parse_workload(f"attention q={shape} k={shape} v={shape} q_heads=12 kv_heads=12 order={orders}")
    config = default_config(workload, HASWELL)
    rows, columns = config.get_int("rows"), config.get_int("columns")
    assert rows > 1 and rows * columns >= 8


@pytest.mark.parametrize("queries", [16, 128, 197, 512])
def test_defaults_fill_the_registers(queries: int) -> None:
    for target in (HOST, HASWELL):
        workload = parse_workload(
            f"attention q=1,12,{queries},64 k=1,12,{queries},64 v=1,12,{queries},64 q_heads=12 kv_heads=12"
        )
        config = default_config(workload, target)
        assert config.template == NAME
        assert 6 <= config.get_int("keys") * config.get_int("queries") < target.num_vector_registers
        assert config.get_str("share") == "heads"


@pytest.mark.parametrize("mask", ["", " mask=197,196 extras=mask"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_blocks_of_many_threads_test_nothing_where_they_multiply(dtype: str, mask: str) -> None:
    """197 queries are twelve blocks and a rest that is no code of its own: tests in its sums took 20 times as long."""
    q, k = f"1,12,197,64:{dtype}", f"1,12,196,64:{dtype}"
    workload = parse_workload(f"attention q={q} k={k} v={k}{mask} q_heads=12 kv_heads=12")
    for target in (fixed("x86 -mcpu=znver4 -num-cores=16"), HOST.with_threads(16)):
        config = default_config(workload, target)
        assert config.get_str("share") == "blocks"
        program = lower(make_schedule(workload, config, target))
        every = list(statements(program.body))
        sums = [x for x in every if isinstance(x, Store) and x.fold == "sum" and x.targets[0][0].scope == REGISTER]
        written_out = {
            x.var for x in every if isinstance(x, For) and x.mark in (UNROLL, VECTORIZE)
        }  # known of each lane
        guards = [c for x in sums for e in expressions(x) if isinstance(e, Load) for c in e.when]
        assert len(sums) >= 3
        whole = 64 % (config.get_int("columns") * target.lanes(4)) == 0  # tiles of a row of values
        assert not guards or not whole
        assert all(isinstance(c, Linear) and set(c.variables()) <= written_out for c in guards)
        tested = [x for one in every if isinstance(one, If) for x in statements(one.body)]
        products = [x for x in sums if x.targets[0][0].name in ("attention_products", "attention_values")]
        assert len(products) >= 2 and not any(x is y for x in products for y in tested)
    check(workload, default_config(workload, HOST.with_threads(16)), HOST)


def test_one_head_is_shared_by_blocks() -> None:
    workload = parse_workload("attention q=1,1,512,64 k=1,1,512,64 v=1,1,512,64 q_heads=1 kv_heads=1")
    assert default_config(workload, HOST).get_str("share") == "blocks"


@pytest.mark.parametrize(
    "text",
    [
        "attention q=1,2,1,64 k=1,2,9,64 v=1,2,9,64 q_heads=2 kv_heads=2",
        "attention q=1,2,16,8 k=1,2,9,8 v=1,2,9,8 q_heads=2 kv_heads=2 result=1",
        "attention q=1,2,16,8 k=1,2,9,8 v=1,2,9,8 q_heads=2 kv_heads=2 dtype=f64",
        "attention q=1,2,16,8 k=1,2,0,8 v=1,2,0,8 q_heads=2 kv_heads=2",
    ],
)
def test_other_workloads_are_left_to_the_generic_schedule(text: str) -> None:
    assert NAME not in [entry.name for entry in templates_for(parse_workload(text), HOST)]
