"""A kernel on its bench: whose memory it writes to."""

from __future__ import annotations

from autotune.measure.bench import Bench, TaskData
from autotune.measure.buffers import SpareBuffers
from autotune.measure.reference import make_reference
from autotune.runtime.threads import ThreadPool
from autotune.target import Target
from tests.measure.toy_kernels import build, candidate


def test_a_kernel_beside_another_writes_where_that_one_does_and_gives_back_nothing_of_it() -> None:
    target, spare = Target.parse("native -num-cores=1"), SpareBuffers(1 << 20)
    task = TaskData(make_reference(candidate(target).workload, 0))
    kernel = build("good", target).kernel
    with ThreadPool(1) as pool, Bench(kernel, task, 1, spare) as bench:
        (_, output), *_ = bench.outputs()
        bench.run(pool)
        right = output.bytes.copy()
        with Bench(kernel, task, 1, spare, bench) as other:
            assert [id(buffer) for buffer in other.written()] == [id(buffer) for buffer in bench.written()]
            output.poison()
            other.run(pool)
            assert (output.bytes == right).all()
        assert spare.take(output.bytes.size) is not output, "it is in use"
        with Bench(kernel, task, 1, spare) as stranger:
            assert not {id(b) for b in stranger.written()} & {id(b) for b in bench.written()}
    assert spare.take(output.bytes.size) is output
