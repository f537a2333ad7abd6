"""Kernels written by hand in LLVM IR: one that is right, and its wrong siblings.

They compute `relu` of f32[rows, 16] (rows split over the threads) into an output with a halo of one row before and
one after, and use one row of scratch per thread.
"""

from __future__ import annotations

from autotune.codegen.jit import compile_ir
from autotune.codegen.kernel import KernelObject
from autotune.lower.ir import Operand
from autotune.measure.types import BuildResult, MeasureInput
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.search_spaces.space.config import Config
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout

ROWS = 32
HALO = Layout.row_major(2).with_halo(((1, 1), (0, 0)))

# what happens in one row; %x is the input row
GOOD = """
  store <16 x float> %x, ptr %scratch
  %again = load <16 x float>, ptr %scratch
  %y = call <16 x float> @llvm.maximum.v16f32(<16 x float> %again, <16 x float> zeroinitializer)
  store <16 x float> %y, ptr %to
"""
BODIES = {
    "good": GOOD,
    "wrong": GOOD.replace("zeroinitializer", "splat (float 0.5)"),
    "forgets a row": GOOD.replace("ptr %to\n", "ptr %most\n"),
    "reads scratch": GOOD.replace("  store <16 x float> %x, ptr %scratch\n", "", 1),
    "dirty scratch": """
  %old = load <16 x float>, ptr %scratch
  %fresh = fcmp uno <16 x float> %old, zeroinitializer
  %z = select <16 x i1> %fresh, <16 x float> zeroinitializer, <16 x float> splat (float 1.0)
  %y0 = call <16 x float> @llvm.maximum.v16f32(<16 x float> %x, <16 x float> zeroinitializer)
  %y = fadd <16 x float> %y0, %z
  %kept = select i1 %is.last, <16 x float> zeroinitializer, <16 x float> %old
  store <16 x float> %kept, ptr %scratch
  store <16 x float> %y, ptr %to
""",
    "overruns": GOOD + "  %beyond = getelementptr float, ptr %out, i64 544\n  store float 0.0, ptr %beyond\n",
    "writes its input": GOOD + "  store <16 x float> %y, ptr %from\n",
    "dirty halo": GOOD + "  store float 1.0, ptr %out\n",
    "stray": GOOD + "  %beside = getelementptr i8, ptr %out, i64 -4\n  store float 0.0, ptr %beside\n",
    "thread one only": GOOD.replace("ptr %to\n", "ptr %alone\n"),
    "crash": "  store <16 x float> %x, ptr null\n",
    "hang": "  br label %spin\nspin:\n  br label %spin\nunreached:\n",
}
IR = """
declare <16 x float> @llvm.maximum.v16f32(<16 x float>, <16 x float>)
define void @relu(ptr %frame, i64 %thread, i64 %threads) {{
entry:
  %in = load ptr, ptr %frame
  %out.at = getelementptr ptr, ptr %frame, i64 1
  %out = load ptr, ptr %out.at
  %scratch.at = getelementptr ptr, ptr %frame, i64 3
  %scratches = load ptr, ptr %scratch.at
  %mine = mul i64 %thread, 64
  %scratch = getelementptr i8, ptr %scratches, i64 %mine
  store <16 x float> zeroinitializer, ptr %out
  %last = getelementptr float, ptr %out, i64 528
  store <16 x float> zeroinitializer, ptr %last
  br label %row
row:
  %i = phi i64 [ %thread, %entry ], [ %next, %row2 ]
  %at = mul i64 %i, 16
  %from = getelementptr float, ptr %in, i64 %at
  %x = load <16 x float>, ptr %from
  %at2 = add i64 %at, 16
  %to = getelementptr float, ptr %out, i64 %at2
  %is.last = icmp eq i64 %i, 31
  %most = select i1 %is.last, ptr %scratch, ptr %to
  %is.first.thread = icmp eq i64 %thread, 0
  %alone = select i1 %is.first.thread, ptr %to, ptr %scratch
{body}
  br label %row2
row2:
  %next = add i64 %i, %threads
  %more = icmp ult i64 %next, 32
  br i1 %more, label %row, label %done
done:
  ret void
}}
"""


def workload() -> Workload:
    rows = WorkloadInput(TensorType("f32", (ROWS, 16)))
    return Workload((rows,), (WorkloadNode.make("relu", (0,)),), (1,))


def candidate(target: Target) -> MeasureInput:
    return MeasureInput(workload(), Config.of(template="toy"), None, target)


def build(name: str, target: Target, constant: bool = False) -> BuildResult:
    """The kernel of that name as a builder would hand it over."""
    code = compile_ir(IR.format(body=BODIES[name]), cpu=target.cpu, features=target.llvm_features)
    operands = (
        Operand("in0", DType.f32, (ROWS, 16), Layout.row_major(2), "input", constant),
        Operand("out0", DType.f32, (ROWS, 16), HALO, "output"),
    )
    kernel = KernelObject("relu", code.object_code, code.ir_hash, operands, 0, 64, code.spills, code.fmas)
    return BuildResult(kernel, "[]", "direct", 0.01)
