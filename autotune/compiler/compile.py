"""From a model and records to one program: choose schedules, build kernels, pack weights, plan memory."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autotune.arguments import checked
from autotune.codegen.beside import Beside
from autotune.codegen.helper import Helper
from autotune.codegen.kernel import KernelObject
from autotune.codegen.object_cache import ObjectCache
from autotune.codegen.runtime_ir import runtime_object
from autotune.compiler.alike import as_packed
from autotune.compiler.choose import Chooser
from autotune.compiler.defaults import Defaults
from autotune.compiler.in_place import in_place, updated
from autotune.compiler.kernel_cache import compiler
from autotune.compiler.kernels import Kernels
from autotune.compiler.layouts import assign
from autotune.compiler.memory import Lifetime, plan_memory
from autotune.compiler.memory_limit import TooLarge, to_give_up
from autotune.compiler.precision import AS_IT_IS, Precise
from autotune.compiler.rounding import expected, together
from autotune.compiler.slots import Assignment, KernelStep
from autotune.compiler.tasks import model_key
from autotune.compiler.weights import PackedWeights, Packing
from autotune.errors import ModelError
from autotune.graph import Graph, load_model, optimize, partition
from autotune.lower.ir import Operand
from autotune.lower.operands import fill_operand
from autotune.metadata import ModelMetadata
from autotune.ops.workload import Workload
from autotune.records import Database, Tier
from autotune.runtime.artifact import Artifact, save_artifact, write_artifact
from autotune.runtime.constants import Constants
from autotune.runtime.executor import Array, Executor
from autotune.runtime.placement import seats_for
from autotune.runtime.program import ARENA, CONSTANTS, INPUT, OUTPUT, Check, KernelCall, Program, Ref, TensorSpec
from autotune.runtime.signature import Signer
from autotune.runtime.trace import RunTrace
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

NOT_FASTER = "tuned, the model was not surely faster as a whole; `autotune tune --verdict tuned` runs it so"
DIRECT_BYTES = 1 << 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel of a compiled model, for coverage and profiles.

    Attributes:
        nbytes: of all its operands.
        origins: names of the ONNX nodes that it computes, the anchor's first.
        error: that its result should have, root mean square by that of the result.
    """

    workload: Workload
    config: str
    tier: Tier
    reason: str
    seconds: float | None
    nbytes: int
    origins: tuple[str, ...] = ()
    error: float = 0.0

    @property
    def description(self) -> str:
        return self.workload.describe()

    @property
    def flops(self) -> int:
        return self.workload.flops


@dataclass(frozen=True, repr=False)
class CompiledModel:
    """A program with its objects and packed weights; `run` executes it, `save` writes it to one file.

    Attributes:
        program: plan, as data.
        objects: relocatable objects, one per distinct kernel.
        constants: packed weights.
        runtime: the object with the thread pool and the plan driver.
        kernels: what each call computes and where its schedule came from (empty when loaded from a file).
        arena_lower_bound: bytes alive at once, the least any arena needs.
        precise: in which floats products are computed.
    """

    program: Program
    objects: tuple[bytes, ...]
    constants: Constants
    runtime: bytes
    kernels: tuple[KernelReport, ...] = ()
    arena_lower_bound: int = 0
    precise: Precise = AS_IT_IS

    def __repr__(self) -> str:
        """One line: inputs, outputs and sizes, without code and weights."""
        inputs = ", ".join(map(str, self.program.inputs))
        outputs = ", ".join(str(spec) for spec, _ in self.program.outputs)
        threads = "1 thread" if self.program.num_threads == 1 else f"{self.program.num_threads} threads"
        return (
            f"<CompiledModel ({inputs}) -> ({outputs}): {len(self.program.calls)} kernels,"
            f" {self.program.constant_bytes} bytes of weights, {threads}>"
        )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.program.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.program.inputs)

    @functools.cached_property
    def expected_error(self) -> float:
        """About the largest rounding error that the outputs should have, of their range (compiler.rounding)."""
        return together(kernel.error for kernel in self.kernels)

    @functools.cached_property
    def key(self) -> str:
        """Identity of the code that runs, whatever its weights: 16 hex digits. Equal programs take equal time."""
        plan = replace(self.program, metadata=ModelMetadata()).to_json()
        found = hashlib.sha256(json.dumps(plan).encode())
        for code in self.objects:
            found.update(hashlib.sha256(code).digest())
        return found.hexdigest()[:16]

    @functools.cached_property
    def executor(self) -> Executor:
        """The linked program."""
        return Executor(*self.artifact.alone())

    @checked
    def run(self, feeds: Mapping[str, object]) -> list[Array]:
        """Outputs in order; see `Executor.run`."""
        return self.executor.run(feeds)

    def run_checked(self, arrays: Sequence[Array], trace: RunTrace | None = None) -> list[Array]:
        """`run` for arrays that are known to fit, in the order of the inputs."""
        return self.executor.run_checked(arrays, trace=trace)

    @checked
    def save(self, path: str | Path, sign: str | Path | None = None) -> None:
        """Write one file that runs without ONNX, XGBoost or LLVM code generation.

        Args:
            sign: a private Ed25519 key, in PEM, to sign the file with.

        Raises:
            CompiledModelError: the file cannot be written.
            InputError: the key cannot be used.
        """
        signer = None if sign is None else Signer.load(sign)
        save_artifact(Path(path), self.artifact, signer)

    @checked
    def write(self, file: BinaryIO) -> None:
        """`save` to an open file that is at its beginning; OSError when it takes no more."""
        write_artifact(file, self.artifact)

    @property
    def artifact(self) -> Artifact:
        """All that runs it."""
        return Artifact((self.program,), self.objects, self.constants, self.runtime)


def compile_graph(
    graph: Graph,
    target: Target,
    database: Database | None = None,
    cache: ObjectCache | None = None,
    *,
    heed_plan: bool = True,
    strict_fp: bool = False,
    strict_workloads: Collection[Workload] = (),
    max_memory: int | None = None,
    weights: PackedWeights | None = None,
    beside: Beside | None = None,
) -> CompiledModel:
    """Compile an optimised graph.

    Args:
        database: where schedules are looked up; None gives every kernel its default.
        heed_plan: use no records where the tuner found that they make this model slower as a whole.
        strict_fp: no algorithm with larger rounding errors than the definition's: no Winograd, no
            Strassen, no pieces of bf16.
        strict_workloads: the kernels of which that holds besides.
        max_memory: bytes that packed weights and the arena of a run may take together. Kernels whose algorithm needs
            larger weights give it up, those that win the least by it first.
        weights: what other programs of the model have packed, to be shared with them.
        beside: processes that were started for it already; it closes them.

    Raises:
        WorkloadError: no template can compute some group.
        CodegenError: LLVM refused a kernel.
        ModelError: it does not fit into `max_memory`.
    """
    groups = partition(graph)
    records, without = database, "no database"
    if database is not None and heed_plan:
        plan = database.plan(model_key(groups), target.key)
        if plan is not None and not plan.tuned:
            database, without = None, NOT_FASTER
    plain: set[Workload] = set(strict_workloads)
    while True:
        with beside or Beside() as beside:
            runtime = beside.submit(functools.partial(_runtime, cache))
            defaults = Defaults(cache, target, beside, records, shared=weights is not None)
            untuned = defaults if weights is None else as_packed(defaults, weights, target)
            chooser = Chooser(target, database, without, strict_fp=strict_fp, strict_workloads=plain, untuned=untuned)
            defaults.ahead(chooser.without_record(group.workload for group in groups if not group.is_view))
            kernels = Kernels(target, cache, chooser, beside)
            assignment = assign(graph, groups, chooser, cache, kernels.foresee)
            _log.info("building the kernels of %d groups for %s", len(assignment.steps), target)
            start = time.perf_counter()
            built = kernels.build(assignment.steps)
            _log.info("built %d kernels in %.2f s", len(kernels.objects), time.perf_counter() - start)
        beside = None
        try:
            return _link(graph, target, assignment, built, kernels, runtime.result(), weights, max_memory)
        except TooLarge as found:
            more = to_give_up(built, found.nbytes - (max_memory or 0)) - plain
            if not more:
                raise ModelError(
                    f"the model needs {found.nbytes} bytes for weights and a run, more than the {max_memory} allowed; "
                    "raise the limit"
                ) from None
            plain |= more


def compile_model(
    model: ModelSource, target: Target, database: Database | None = None, cache: ObjectCache | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> CompiledModel:  # fmt: skip
    """Read, optimise and compile an ONNX model."""
    return compile_graph(optimize(load_model(model, shapes)), target, database, cache)


def _runtime(cache: ObjectCache | None, helper: Helper | None) -> bytes:
    """The object with the thread pool and the plan driver."""
    return runtime_object(compiler(cache, helper))


def _link(
    graph: Graph,
    target: Target,
    a: Assignment,
    built: list[tuple[KernelStep, KernelObject]],
    kernels: Kernels,
    runtime: bytes,
    weights: PackedWeights | None,
    max_memory: int | None,
) -> CompiledModel:
    """Place every buffer and turn kernels into calls. Raises TooLarge before anything large is allocated."""
    inputs = {slot: n for n, slot in enumerate(a.inputs[v.name] for v in graph.inputs)}
    lifetimes = a.lifetimes()
    direct = _direct_outputs(graph, a, inputs)
    updates = updated(a, lifetimes, inputs, direct)
    shared = in_place(a, lifetimes, frozenset(slot for slot in lifetimes if slot not in inputs and slot not in direct))
    owned = sorted(set(shared.values()))
    for slot, owner in shared.items():
        if slot != owner:
            lifetimes[owner] += lifetimes[slot]
    buffers = [Lifetime(_bytes(a, slot), min(lifetimes[slot]), max(lifetimes[slot])) for slot in owned]
    for n, (_, kernel) in enumerate(built):
        buffers.append(Lifetime(kernel.shared_scratch, n, n))
        buffers.append(Lifetime(kernel.thread_scratch * target.num_threads, n, n))
    memory = plan_memory(buffers)
    place = dict(zip(owned, memory.offsets))
    constants = Packing(weights, seats_for(target.num_threads))

    def ref(slot: int) -> Ref:
        root, first = a.root(slot)
        if root in inputs:
            if first:
                raise AssertionError("a view into a model input has an offset")
            return Ref(INPUT, inputs[root])
        if root in direct:
            return Ref(OUTPUT, direct[root])
        return Ref(ARENA, place[shared[root]] + first * _itemsize(a, slot))

    calls = []
    for n, (step, kernel) in enumerate(built):
        scratch = len(owned) + 2 * n
        frame = [_operand_ref(graph, step, o, ref, constants) for o in kernel.operands]
        frame += [Ref(ARENA, memory.offsets[scratch]), Ref(ARENA, memory.offsets[scratch + 1])]
        calls.append(KernelCall(kernels.number[kernel.ir_hash], tuple(frame), step.workload.describe()))
    outputs, checks = [], []
    for output in graph.outputs:
        value = graph.values[output.value]
        spec = TensorSpec(output.name, value.dtype, value.shape)
        if output.value in graph.constants:
            fill = functools.partial(_copy, graph.constants[output.value])
            key = ("output", constants.identity(output.value, graph.constants[output.value]))
            where = Ref(CONSTANTS, constants.add(key, value.nbytes, fill))
        else:
            where = ref(a.outputs[output.value])
        if output.complaint:
            checks.append(Check(where, output.complaint))
        else:
            outputs.append((spec, where))
    if max_memory is not None and constants.size + memory.total > max_memory:
        raise TooLarge(constants.size + memory.total)
    packed = constants.packed()
    program = Program(
        target.to_json(),
        target.num_threads,
        tuple(TensorSpec(v.name, v.dtype, v.shape) for v in graph.inputs),
        tuple(outputs),
        tuple(calls),
        memory.total,
        packed.nbytes,
        sum(step.workload.flops for step, _ in built),
        tuple(checks),
        graph.metadata,
        updates=updates,
    )
    reports = tuple(
        KernelReport(
            s.workload, s.choice.config.to_json(), s.choice.tier, s.choice.reason, s.choice.seconds,
            sum(o.bytes for o in kernel.operands), s.origins, expected(s.workload, s.choice.algorithm),
        )
        for s, kernel in built
    )  # fmt: skip
    return CompiledModel(program, tuple(kernels.objects), packed, runtime, reports, memory.lower_bound)


def _direct_outputs(graph: Graph, a: Assignment, inputs: Mapping[int, int]) -> dict[int, int]:
    """Buffers that kernels write straight into the caller's array: slot -> number of the output.

    Small outputs are cheaper to copy than to point to, and a program can only point to the start of one.
    """
    found: dict[int, int] = {}
    divided = {a.root(slot)[0] for slot in range(len(a.slots)) if a.root(slot)[1]}
    for number, output in enumerate(graph.outputs):
        if output.value not in graph.constants:
            slot, first = a.root(a.outputs[output.value])
            size = graph.values[output.value].nbytes
            free = slot not in inputs and slot not in found and slot not in divided
            if free and first == 0 and _bytes(a, slot) == size >= DIRECT_BYTES:
                found[slot] = number
    return found


def _operand_ref(
    graph: Graph, step: KernelStep, operand: Operand, ref: Callable[[int], Ref], constants: Packing
) -> Ref:
    if operand.role == "output":
        return ref(step.outputs[int(operand.name.removeprefix("out"))])
    if operand.prepared is None:
        source = step.inputs[int(operand.name.removeprefix("in"))]
        if isinstance(source, int):
            return ref(source)
    held = {f"in{n}": graph.constants[s] for n, s in enumerate(step.inputs) if isinstance(s, str)}
    number = int(operand.name.removeprefix("in")) if operand.prepared is None else None
    read = step.inputs if number is None else (step.inputs[number],)
    made = tuple(constants.identity(s, graph.constants[s]) for s in read if isinstance(s, str))
    one = made if number is not None else (operand.name, made)
    prepared = operand.prepared.key if operand.prepared is not None else ""
    key = (one, prepared, operand.layout)
    fill = functools.partial(fill_operand, operand, held)
    return Ref(CONSTANTS, constants.add(key, operand.bytes, fill, _as_it_is(operand, held)))


def _as_it_is(operand: Operand, held: Mapping[str, Array]) -> Array | None:
    """The constant that has the very bytes that the operand has; None where there is none."""
    array = held.get(operand.name)
    if array is None or operand.prepared is not None or array.dtype != operand.dtype.numpy:
        return None
    plain = operand.layout == Layout.row_major(array.ndim) and array.nbytes == operand.bytes
    return array if plain else None


def _copy(array: Array, memory: Array) -> None:
    memory.view(array.dtype).reshape(array.shape)[...] = array


def _itemsize(a: Assignment, slot: int) -> int:
    return DType(a.slots[slot].dtype).bytes


def _bytes(a: Assignment, slot: int) -> int:
    return a.slots[slot].elements * _itemsize(a, slot)
