"""The graph verifier: run after every pass; what it finds is a bug of the pass that ran last."""

from __future__ import annotations

from autotune.errors import ModelError, WorkloadError
from autotune.graph.infer import infer
from autotune.graph.ir import Graph, Value, constant_value


def verify(graph: Graph) -> None:
    """Check single assignment, dominance, operator types and shapes, and outputs. Raises ModelError."""
    defined: dict[str, Value] = {}

    def define(value: Value) -> None:
        if value.name in defined:
            raise ModelError(f"graph '{graph.name}': '{value.name}' is defined twice")
        defined[value.name] = value

    for value in graph.inputs:
        define(value)
    for name, array in graph.constants.items():
        define(constant_value(name, array))
    for node in graph.nodes:
        where = f"graph '{graph.name}': node '{node.name}' ({node.op})"
        for name in node.inputs:
            if name not in defined:
                raise ModelError(f"{where} reads '{name}' before it is defined")
        try:
            found = infer(node.op, [defined[name] for name in node.inputs], dict(node.attrs))
        except WorkloadError as error:
            raise ModelError(f"{where}: {error}") from error
        if found != (node.output.dtype, node.output.shape):
            raise ModelError(f"{where} is declared {node.output} but computes {found[0]}{list(found[1])}")
        define(node.output)
    for output in graph.outputs:
        if output.value not in defined:
            raise ModelError(
                f"graph '{graph.name}': output '{output.name}' reads '{output.value}', which nothing defines"
            )
