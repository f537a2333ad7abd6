"""What remains of attention when the Concat of its caches is written out (`cache_joints`)."""

from __future__ import annotations

from autotune.graph.frontend.cache_joints import OWN, TO_CACHE
from autotune.graph.frontend.contrib.attention import Heads, added_mask, apart, attend, head_count, split_heads
from autotune.graph.frontend.node import OnnxNode, contributed

QUERIES, KEYS, VALUES, LENGTH, BEFORE, MASK, BIAS = range(7)


@contributed(TO_CACHE, inputs=7, domains=(OWN,))
def attention_to_cache(node: OnnxNode) -> tuple[str, str]:
    """(result, scores). How many keys there are is no constant where there is room for more (`buckets`)."""
    heads, batch, keys = head_count(node), node.shape(QUERIES)[0], node.shape(KEYS)[-2]
    pair = (
        [Heads(node.input(n), "bhsd") for n in (KEYS, VALUES)] if node.given(VALUES) else apart(node, node.input(KEYS))
    )
    operands = [Heads(split_heads(node, node.input(QUERIES), heads)), *pair]
    mask, causal = added_mask(node, MASK, BIAS, keys), node.attr_flag("unidirectional")
    extras, offset = {} if mask is None else {"mask": mask}, 0
    if node.is_constant(BEFORE):
        offset = node.constant_int(BEFORE, "the number of old keys")
    # Queries of a prompt may be padded like its keys: the last one is not at the last key, but no key that it must not
    # see comes before it.
    if not node.is_constant(LENGTH) and not (causal and node.is_constant(BEFORE)):
        length = node.reshaped(node.input(LENGTH), (1,))
        extras["lengths"] = node.expanded(length, (batch,))

    def attended(scores: bool) -> str:
        return attend(node, operands, extras, (heads, heads), causal=causal, offset=offset, scores=scores)

    return attended(False), attended(True) if node.wanted(1) else ""
