"""What must hold of one ONNX node, and its conversion by the converter of its operator."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx

from autotune.errors import ModelError, UnsupportedError, WorkloadError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.node import OnnxNode, converter_for, most_inputs
from autotune.graph.frontend.source import shortened, type_name

MODERN_OPSET = 7  # from here on broadcasting is NumPy's, and BatchNormalization, Dropout have no test mode
BEYOND_THE_SCHEMA = {("CumSum", 0, "tensor(bool)")}  # inputs that exporters write: torch counts what holds, in i64
WITHOUT_EFFECT = {"consumed_inputs", "is_test", "momentum", "ratio"}  # at inference


def convert_node(node: OnnxNode) -> Sequence[str]:
    """The values that a node's converter emits, one per ONNX output.

    Raises:
        ModelError, UnsupportedError: the node is impossible, or has what its converter does not know.
    """
    check_attributes(node)
    converter = converter_for(node.proto.domain, node.op)
    if converter is None:
        raise UnsupportedError(f"{node.label} has no converter")
    try:
        results = converter(node)
    except WorkloadError as error:
        raise ModelError(f"{node.label}: {error}") from error
    _check_old_attributes(node)
    _check_contributed(node)
    results = (results,) if isinstance(results, str) else results
    wanted = max((i + 1 for i, name in enumerate(node.proto.output) if name), default=0)
    if wanted > len(results):
        raise UnsupportedError(f"{node.label}: output {wanted - 1} ('{node.proto.output[wanted - 1]}') is not computed")
    return results


def check_attributes(node: NodeAttributes) -> None:
    """Refuse attributes and input counts that the operator's schema does not have, and what has no schema."""
    if most_inputs(node.proto.domain, node.op) is not None:
        return
    if node.proto.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op, node.opset, ""):
        raise UnsupportedError(f"{node.label} is no operator of opset {node.opset}")
    schema = onnx.defs.get_schema(node.op, node.opset, "")
    given: set[str] = set()
    for attribute in node.proto.attribute:
        if attribute.name not in schema.attributes:
            raise ModelError(f"{node.label}: {node.op} has no attribute '{attribute.name}' in opset {node.opset}")
        if attribute.name in given:
            raise ModelError(f"{node.label}: attribute '{attribute.name}' is given twice")
        given.add(attribute.name)
    for name, attribute in schema.attributes.items():
        if attribute.required and not node.has(name):
            raise ModelError(f"{node.label}: the required attribute '{name}' is missing")
    if not schema.min_input <= len(node.proto.input) <= schema.max_input:
        raise ModelError(f"{node.label}: {len(node.proto.input)} inputs; {node.op} takes {schema.min_input}"
                         + (f" to {schema.max_input}" if schema.max_input != schema.min_input else ""))  # fmt: skip


def check_types(node: OnnxNode) -> None:
    """Refuse inputs of element types that the operator's schema does not allow, and those that must be the same."""
    if node.proto.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op, node.opset, ""):
        return
    parameters = _parameters(node.op, node.opset)
    bound: dict[str, str] = {}
    for position, name in enumerate(node.inputs):
        if name is None or not parameters:
            continue
        letter, types, alike = parameters[min(position, len(parameters) - 1)]
        found = type_name(node.builder.values[name].dtype)
        if (node.op, position, found) in BEYOND_THE_SCHEMA:
            continue
        if found not in types:
            wanted = ", ".join(sorted(types)) or "a sequence"
            raise ModelError(f"{node.label}: input {position} is a {found}; {node.op} takes {wanted}")
        if alike and bound.setdefault(letter, found) != found:
            raise ModelError(f"{node.label}: input {position} is a {found}, others are a {bound[letter]}; cast one")


@functools.lru_cache(maxsize=1024)
def _parameters(op: str, opset: int) -> tuple[tuple[str, frozenset[str], bool], ...]:
    """Of each input: its type variable, the tensor types that it may have, and whether the variable binds them.

    What the newest form of the operator allows for the same input is allowed in old ones too: exporters do so.
    """
    newest = {p.name: p.types for p in onnx.defs.get_schema(op, onnx.defs.onnx_opset_version(), "").inputs}
    schema = onnx.defs.get_schema(op, opset, "")
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    return tuple(
        (p.type_str, frozenset(t for t in (*p.types, *newest.get(p.name, ())) if t.startswith("tensor(")),
         p.is_homogeneous and p.type_str in variables)
        for p in schema.inputs
    )  # fmt: skip


def _check_contributed(node: OnnxNode) -> None:
    """Refuse inputs and attributes that the converter of an operator without a schema did not look at."""
    most = most_inputs(node.proto.domain, node.op)
    if most is None:
        return
    if any(node.proto.input[most:]):
        raise UnsupportedError(f"{node.label}: input {most} and those behind it are not supported")
    unknown = [a.name for a in node.proto.attribute if a.name not in node.asked]
    if unknown:
        raise UnsupportedError(f"{node.label}: the attribute '{shortened(unknown[0])}' is not supported")


def _check_old_attributes(node: OnnxNode) -> None:
    """Refuse training, and attributes of the first opsets that the converter did not look at: they may mean more."""
    if node.opset < MODERN_OPSET and onnx.defs.has(node.op, node.opset, ""):
        if "is_test" in onnx.defs.get_schema(node.op, node.opset, "").attributes and not node.attr_int("is_test", 0):
            raise UnsupportedError(f"{node.label}: is_test=0 is training; export the model for inference")
        unknown = [a.name for a in node.proto.attribute if a.name not in node.asked | WITHOUT_EFFECT]
        if unknown:
            raise UnsupportedError(f"{node.label}: attribute {', '.join(unknown)} of opset {node.opset}")
