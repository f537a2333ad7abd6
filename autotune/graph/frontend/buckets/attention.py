"""The rule of attention behind caches (`cache_joints`)."""

from __future__ import annotations

from autotune.graph.frontend.buckets.at import At, rule
from autotune.graph.frontend.buckets.facts import CannotPad, Fact
from autotune.graph.frontend.cache_joints import OWN, TO_CACHE


@rule(TO_CACHE, domain=OWN)
def attention_to_cache(at: At) -> list[Fact]:
    """Keys are padded, and it is told how many there are. Queries may be, where there are no old keys or no direction:
    else the last one is that at the last key."""
    queries, keys, length, before = at.dims(0), at.dims(1), at.fact(3), at.fact(4)
    heads = at.node.attr_int("num_heads", 0)
    if keys[-2] == at.symbol and length.elements != (at.symbol,):
        raise CannotPad("how many keys there are is not known")
    at.told.update({n: fact for n, fact in ((3, length), (4, before)) if fact.tells(at.symbol)})
    if at.symbol in (*keys[:-2], keys[-1], queries[0], queries[2]):
        raise CannotPad("another dimension than that of keys and queries is padded")
    prompt = keys[-2] == at.symbol and before.elements == (0,)
    free = keys[-2] != at.symbol and not at.node.attr_int("unidirectional", 0)
    if queries[1] == at.symbol and not (prompt or free):
        raise CannotPad("queries are padded, and there are old keys")
    if keys[-2] == at.symbol:
        at.mixes = True
    return [Fact(queries), Fact((queries[0], heads, queries[1], keys[-2]))]
