"""Graph passes, each `Graph -> Graph` in a file of its own; a pass that changes nothing returns its argument.

A pass states what it requires and ensures; `optimize` runs them to a fixed point and verifies after each change.
"""

from __future__ import annotations

import inspect
import logging
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from autotune.errors import ModelError
from autotune.graph.ir import Graph
from autotune.graph.passes.attention_views import attention_views
from autotune.graph.passes.bound_sums import bound_sums
from autotune.graph.passes.code_weights import code_weights
from autotune.graph.passes.common_subexpressions import merge_common_subexpressions
from autotune.graph.passes.dead_code import remove_dead_code
from autotune.graph.passes.drop_expands import drop_expands
from autotune.graph.passes.drop_taps import drop_taps
from autotune.graph.passes.fewer_points import fewer_points
from autotune.graph.passes.fold_constants import fold_constants
from autotune.graph.passes.fold_input_scale import fold_input_scale
from autotune.graph.passes.fold_pad import fold_pad
from autotune.graph.passes.fold_scale import fold_scale
from autotune.graph.passes.fold_transposes import fold_transposes
from autotune.graph.passes.integer_regions import integer_regions
from autotune.graph.passes.merge_affine import merge_affine
from autotune.graph.passes.merge_branches import merge_branches
from autotune.graph.passes.merge_clips import merge_clips
from autotune.graph.passes.merge_movement import merge_movement
from autotune.graph.passes.merge_products import merge_products
from autotune.graph.passes.merge_projections import merge_projections
from autotune.graph.passes.merge_reductions import merge_reductions
from autotune.graph.passes.merge_slices import merge_slices
from autotune.graph.passes.multiply_by_reciprocals import multiply_by_reciprocals
from autotune.graph.passes.raise_slices import raise_slices
from autotune.graph.passes.recognize_activations import recognize_activations
from autotune.graph.passes.recognize_attention import recognize_attention
from autotune.graph.passes.recognize_norms import recognize_norms
from autotune.graph.passes.recognize_rotary import recognize_rotary
from autotune.graph.passes.recognize_softmax import recognize_softmax
from autotune.graph.passes.reduce_strength import reduce_strength
from autotune.graph.passes.remove_noops import remove_noops
from autotune.graph.passes.repeat_dequantize import repeat_dequantize
from autotune.graph.passes.scale_convolutions import scale_convolutions
from autotune.graph.passes.sink_reshapes import sink_reshapes
from autotune.graph.passes.sink_shuffles import sink_shuffles
from autotune.graph.passes.sink_transposes import sink_transposes
from autotune.graph.passes.split_phases import split_phases
from autotune.graph.passes.unread_rows import unread_rows
from autotune.graph.passes.widen_halves import widen_halves
from autotune.graph.verify import verify
from autotune.ops.registry import suggest

Pass = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {
    "dead-code": remove_dead_code,
    "integer-regions": integer_regions,
    "code-weights": code_weights,
    "fold-constants": fold_constants,
    "remove-noops": remove_noops,
    "merge-movement": merge_movement,
    "common-subexpressions": merge_common_subexpressions,
    "reduce-strength": reduce_strength,
    "merge-clips": merge_clips,
    "merge-reductions": merge_reductions,
    "recognize-activations": recognize_activations,
    "widen-halves": widen_halves,
    "recognize-norms": recognize_norms,
    "recognize-softmax": recognize_softmax,
    "recognize-rotary": recognize_rotary,
    "recognize-attention": recognize_attention,
    "attention-views": attention_views,
    "raise-slices": raise_slices,
    "merge-projections": merge_projections,
    "merge-slices": merge_slices,
    "drop-expands": drop_expands,
    "sink-transposes": sink_transposes,
    "fold-transposes": fold_transposes,
    "sink-reshapes": sink_reshapes,
    "scale-convolutions": scale_convolutions,
    "merge-affine": merge_affine,
    "fold-scale": fold_scale,
    "fold-input-scale": fold_input_scale,
    "merge-products": merge_products,
    "fold-pad": fold_pad,
    "drop-taps": drop_taps,
    "split-phases": split_phases,
    "sink-shuffles": sink_shuffles,
    "merge-branches": merge_branches,
    "multiply-by-reciprocals": multiply_by_reciprocals,
    "repeat-dequantize": repeat_dequantize,
    "unread-rows": unread_rows,
    "bound-sums": bound_sums,
    "fewer-points": fewer_points,
}
LAST = ("multiply-by-reciprocals", "repeat-dequantize", "unread-rows", "bound-sums", "fewer-points")
"""Passes that run once, behind the others, which would undo what they do."""

_log = logging.getLogger(__name__)

MAX_ROUNDS = 100  # every pass shrinks the graph or moves it towards a normal form; this only bounds a bug


def check_names(names: Collection[str]) -> None:
    """Raises ModelError for a name that is no pass's."""
    if not isinstance(names, Collection):
        raise ModelError(f"graph passes to leave out are a list of names, not {names!r}")
    for name in map(str, names):
        if name not in PASSES:
            raise ModelError(f"there is no graph pass '{name}'; {suggest(name, PASSES)} `autotune passes` lists all")


def optimize(graph: Graph, skip: Collection[str] = (), on_change: Callable[[str, Graph], None] | None = None) -> Graph:
    """Run the passes in order, again and again, until none changes anything; then those of `LAST`.

    Args:
        graph: a verified graph.
        skip: names of passes to leave out.
        on_change: called with the pass's name and the new graph after each change (dumps, reports).

    Raises:
        ModelError: `skip` names no pass, or a pass produced a malformed graph (a bug).
    """
    check_names(skip)
    start, imported = time.perf_counter(), len(graph.nodes)
    settled: dict[str, Graph] = {}  # what each pass had nothing to do on
    repeated = [name for name in PASSES if name not in skip and name not in LAST]
    for _ in range(MAX_ROUNDS):
        before = graph
        for name in repeated:
            if settled.get(name) is graph:
                continue
            after = _run(name, graph, on_change)
            if after is graph:
                settled[name] = graph
            graph = after
        if graph is before:
            break
    for name in (*LAST, "dead-code"):
        graph = graph if name in skip else _run(name, graph, on_change)
    seconds = time.perf_counter() - start
    _log.info("graph passes: %d nodes became %d in %.2f s", imported, len(graph.nodes), seconds)
    return graph


def _run(name: str, graph: Graph, on_change: Callable[[str, Graph], None] | None) -> Graph:
    """The graph after one pass, verified and told of if it is another."""
    after = PASSES[name](graph)
    if after is not graph:
        verify(after)
        _log.debug("%s: %d nodes became %d", name, len(graph.nodes), len(after.nodes))
        if on_change is not None:
            on_change(name, after)
    return after


@dataclass(frozen=True, slots=True)
class PassDescription:
    """What the docstring of a pass's file says."""

    name: str
    summary: str
    requires: str
    ensures: str


def describe(name: str) -> PassDescription:
    """What a pass does, from the docstring at the top of its file: a sentence, then `requires:` and `ensures:`."""
    text = " ".join((inspect.getmodule(PASSES[name]).__doc__ or "").split())
    found = re.fullmatch(r"(.*?) requires: (.*?)\.? ensures: (.*)", text)
    if found is None:
        raise AssertionError(f"the file of pass {name!r} does not say what it requires and ensures")
    summary = re.split(r"(?<=\.) ", found[1])[0]
    return PassDescription(name, summary, found[2], found[3].rstrip("."))
