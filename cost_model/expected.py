"""The time to expect of a whole kernel, read off its loops: what the untuned choice between templates goes by.

A kernel is nests that run one after the other, each of which fills a buffer: transforms, products, sums. Its time is
the sum of theirs. Rates, latencies and sizes are the machine description's; nothing is fitted to kernels or templates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotune.core import LINE
from autotune.cost_model.instructions import Instructions, adding, counted, nonzero
from autotune.cost_model.padding import share_read
from autotune.cost_model.traffic import Traffic
from autotune.lower.ir import (
    REGISTER,
    SHARED,
    Barrier,
    For,
    LoopProgram,
    Prefetch,
    Stmt,
    Store,
    body_of,
    statements,
    with_body,
)
from autotune.lower.partial_sums import is_parked
from autotune.schedule.dot_products import on_tiles
from autotune.schedule.state import PARALLEL, SERIAL
from autotune.target import Target
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Read

Nest = tuple[tuple[Stmt, ...], tuple[For, ...]]
"""Statements, and the loops around them."""

LATE = 0.5
"""Share of the time of moving bytes that nothing hides: as for the nests of sketches."""


def expected_cycles(program: LoopProgram, target: Target) -> float:
    """Cycles of the slowest thread. Constants come from memory: between two runs of a kernel a model reads others; and
    what threads fill for each other, from the caches of others."""
    core, threads = target.core, target.num_threads
    body = _one_thread(program.body, threads)
    nests = list(_nests(body, ()))
    traffic = Traffic(body, [stmts for stmts, _ in nests])
    constants = {o.name for o in program.operands if o.constant}
    theirs = {b.name for b in program.buffers if b.scope == SHARED} if threads > 1 else set()
    (l1, from_l2), (l2, from_l3), _ = behind_caches(target)
    # What several threads read comes from memory once: what they lack together.
    whole = _one_thread(program.body, 1)
    together = Traffic(whole, [stmts for stmts, _ in _nests(whole, ())]) if threads > 1 else traffic
    memory = core.from_dram(threads)
    moved = [
        [bytes_ / from_l2 for bytes_ in traffic.missed(l1, constants | theirs)],
        [bytes_ / from_l3 for bytes_ in traffic.missed(l2, constants | theirs)],
        [bytes_ / memory for bytes_ in together.missed(target.l3_bytes, constants)],
    ]
    total = 0.0
    for n, (stmts, around) in enumerate(nests):
        moving = [cycles[n] for cycles in moved]
        arithmetic = _issued(counted(stmts, around, target), target)
        # What is asked for early comes meanwhile; but not beside tiles, whose loads take all buffers for lines.
        early = set[str]() if _multiplies_tiles(stmts) else _asked(stmts)
        asked = sum(traffic.touches[name].lines(LINE) for name in early & traffic.touches.keys())
        late = [max(cycles - asked / rate, 0.0) for cycles, rate in zip(moving[1:], (from_l3, memory / threads))]
        total += overlapped(arithmetic, *moving, late=moving[0] + sum(late))
    return total + (_meetings(program.body) * core.barrier_cycles if threads > 1 else 0.0)


def least_cycles(compute: ComputeDef, target: Target) -> float:
    """No less is expected of any kernel that computes these stages: that of sums of floats and of pairs of 16-bit
    integers, and reading constants once.

    Of sums that read padding only the terms outside of it count, since loops may pass it over.
    """
    prepared = {tensor.name for tensor in compute.inputs if tensor.constant}
    narrow = {tensor.name for tensor in compute.inputs if not _is_wide(tensor.dtype)}
    starting, constants = 0.0, 0
    for stage in compute.stages:
        reads, made = stage.reads(), {tensor.name for tensor in stage.outputs}
        if stage.reducer is None and any(read.tensor.name in narrow for read in reads):
            narrow |= made  # a cast, which a product may look through
        if all(read.tensor.name in prepared for read in reads):
            prepared |= made
        elif stage.reducer is not None and (started := _started(reads, narrow, target)):
            points = math.prod(axis.extent for axis in stage.all_axes) * share_read(stage)
            starting += points * math.prod(map(nonzero, stage.body)) / started
            if any(read.when is not None for read in reads):
                continue  # of a window that padding covers, constants are not read
            read_once = {read.tensor.name: read.tensor for read in reads if read.tensor.name in prepared}
            constants += sum(math.prod(t.shape) * t.dtype.bytes for t in read_once.values())
    moving = [constants / rate for _, rate in behind_caches(target)]
    late = moving[0]  # what comes from behind the second cache may be asked for in good time
    return overlapped(starting, *moving, late=late) / target.num_threads


def _started(reads: Sequence[Read], narrow: set[str], target: Target) -> float:
    """Products of a sum that start in a cycle, at most; 0 where that is not known."""
    if all(_is_plain(read, narrow) for read in reads):
        return target.lanes(DType.f32.bytes) * adding(target).per_cycle
    return target.core.pairs if all(read.dtype is DType.i16 for read in reads) else 0.0


def _is_plain(read: Read, narrow: set[str]) -> bool:
    """Whether an operand is of whole lanes, and was made of such: of smaller ones an instruction may add several."""
    return _is_wide(read.dtype) and read.tensor.name not in narrow


def _is_wide(dtype: DType) -> bool:
    return dtype.is_float and dtype.bytes >= DType.f32.bytes


def behind_caches(target: Target) -> tuple[tuple[int, float], ...]:
    """Of each cache: the bytes it holds of one thread's, and those that come in a cycle from behind it."""
    core, threads = target.core, target.num_threads
    return (
        (target.l1_bytes, core.l2),
        (target.l2_bytes, min(core.l3, core.l3_shared / threads)),
        (target.l3_bytes // threads, min(core.dram, core.dram_shared / threads)),
    )


def overlapped(arithmetic: float, *moving: float, late: float | None = None) -> float:
    """Cycles of arithmetic while bytes are moved: what takes longest, and what of moving is not hidden; but no more
    than one after the other.

    Args:
        moving: cycles of each level of memory. `late`: of all, those of what nobody asks for in time; None: all.
    """
    hidden = max(arithmetic, *moving) + LATE * (sum(moving) if late is None else late)
    return min(hidden, arithmetic + max(moving))


def _asked(stmts: Sequence[Stmt]) -> set[str]:
    """Buffers whose lines are asked for while others are worked on; a few turns ahead memory may still be late."""
    return {s.buffer.name for s in statements(tuple(stmts)) if isinstance(s, Prefetch) and s.early}


def _multiplies_tiles(stmts: Sequence[Stmt]) -> bool:
    return any(isinstance(s, For) and on_tiles(s.mark) for s in statements(tuple(stmts)))


def _issued(found: Instructions, target: Target) -> float:
    core = target.core
    return max(found.arithmetic, found.waiting, found.loads / core.loads, found.stores / core.stores)


def _meetings(body: Sequence[Stmt]) -> int:
    """How often all threads wait for each other inside of the kernel."""
    turns = ((stmt.extent if isinstance(stmt, For) else 1, stmt) for stmt in body)
    return sum(1 if isinstance(stmt, Barrier) else times * _meetings(body_of(stmt)) for times, stmt in turns)


def _one_thread(body: Sequence[Stmt], threads: int) -> tuple[Stmt, ...]:
    """What the thread does that has most to do."""
    out = []
    for stmt in body:
        inner = with_body(stmt, _one_thread(body_of(stmt), threads))
        if isinstance(inner, For) and inner.mark == PARALLEL:
            inner = replace(inner, extent=-(-inner.extent // threads), mark=SERIAL)
        out.append(inner)
    return tuple(out)


def _nests(body: Sequence[Stmt], around: tuple[For, ...]) -> Iterator[Nest]:
    """Runs of statements that fill one buffer; loops around several are taken apart."""
    run: list[Stmt] = []
    filled: set[str] = set()
    for stmt in body:
        own = _filled(stmt)
        if len(own | filled) > 1:
            if run:
                yield tuple(run), around
            run, filled = [], set()
        if len(own) > 1:
            yield from _nests(body_of(stmt), (*around, stmt) if isinstance(stmt, For) else around)
        else:
            run.append(stmt)
            filled |= own
    if run:
        yield tuple(run), around


def _filled(stmt: Stmt) -> set[str]:
    """Buffers in memory that are written; where a sum is parked belongs to who sums up."""
    stores = [s for s in statements((stmt,)) if isinstance(s, Store)]
    written = (buffer for s in stores for buffer, _ in s.targets)
    return {buffer.name for buffer in written if buffer.scope != REGISTER and not is_parked(buffer)}
