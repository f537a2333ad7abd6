"""An operator of one's own: the L1 distance of each row of x to each row of a codebook (com.example.L1Distance)."""

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.ops import Workload, compute_def
from autotune.ops.registry import operator
from autotune.schedule import Schedule
from autotune.search_spaces import Choice, Config, ConfigSpace, Interface, template
from autotune.search_spaces.library.anchored import with_layouts
from autotune.target import Target
from autotune.tensor import Tensor, compute, reduce_axis, sum_, unary


# What is computed.
@operator("l1_distance", operands="x codebook", weights="codebook")
def l1_distance(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    x, codebook = inputs
    k = reduce_axis(x.shape[1], "k")
    rows = (x.shape[0], codebook.shape[0])
    return compute(rows, lambda i, j: sum_(unary("abs", x[i, k] - codebook[j, k]), k), name="l1_distance")


# Which nodes of an ONNX model it is.
@contributed("L1Distance", inputs=2, domains=["com.example"])
def convert(node: OnnxNode) -> str:
    return node.emit("l1_distance", *node.all_inputs())


# How it may be computed: sums in the lanes of a vector, rows of x on different threads.
@template("l1_distance.lanes", op="l1_distance")
class Lanes:
    def applies(self, workload: Workload, target: Target) -> bool:
        return len(workload.nodes) == 1

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        return ConfigSpace(
            (Choice("lanes", tuple(n for n in (8, 16, 32, 64) if n <= workload.inputs[0].type.shape[1])),)
        )

    def default(self, workload: Workload, target: Target) -> Config:
        return self.space(workload, target).default().replace(lanes=target.lanes(4))

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        s = with_layouts(Schedule(compute_def(workload)), interface, {})
        s = s.rfactor("out0", "k", config.get_int("lanes"), keep="inner").parallel("out0", "i")
        s = s.compute_at("out0.rf", "out0", "j", "register").reorder("out0.rf", "k.o", "k.i")
        return s.vectorize("out0.rf", "k.i").vectorize("out0", "k.i")
