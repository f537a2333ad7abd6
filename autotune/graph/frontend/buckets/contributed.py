"""Rules of operators of ONNX Runtime's own, which its optimiser writes between those that hold caches."""

from __future__ import annotations

from autotune.graph.frontend.buckets.at import At, rule
from autotune.graph.frontend.buckets.facts import CannotPad, Fact, broadcast
from autotune.graph.frontend.buckets.rules import elementwise, gemm, matmul
from autotune.graph.frontend.node import MICROSOFT

rule("BiasGelu", "FastGelu", "Gelu", "QuickGelu", domain=MICROSOFT)(elementwise)
rule("FusedGemm", domain=MICROSOFT)(gemm)


def _alone(at: At, *positions: int) -> None:
    """Refuse the open dimension in other inputs than these."""
    for n, fact in enumerate(at.facts):
        if n not in positions and fact is not None and fact.has(at.symbol):
            raise CannotPad("another input has the open dimension")


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_normalize(at: At) -> list[Fact]:
    _alone(at, 0, 1)
    dims = broadcast([at.dims(0), at.dims(1)], at.symbol)
    if dims[-1] == at.symbol:
        raise CannotPad("it normalises over the open dimension")
    reduced = Fact((*dims[:-1], 1))
    return [Fact(dims), reduced, reduced, Fact(dims)]


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def embed(at: At) -> list[Fact]:
    """Tokens, segments and positions are looked up each for itself; a mask is counted."""
    _alone(at, 0, 1, 8)
    tokens = at.dims(0)
    if len(tokens) != 2 or at.symbol in at.dims(2):
        raise CannotPad("it looks up in the open dimension")
    at.mixes |= tokens[1] == at.symbol
    embedded = Fact((*tokens, at.dims(2)[-1]))
    return [embedded, Fact(tokens[:1]), embedded]


@rule("FusedMatMul", domain=MICROSOFT)
def fused_matmul(at: At) -> list[Fact]:
    turned = [at.node.attr_int(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB")]
    if not any(turned):
        return [Fact(fact.dims) for fact in matmul(at)]  # whose bound knows nothing of alpha
    a, b = at.dims(0), at.dims(1)
    if turned[0] or any(turned[2:]) or min(len(a), len(b)) < 2 or at.symbol in (a[-1], b[-1], b[-2]):
        raise CannotPad("it turns a matrix with the open dimension")
    return [Fact((*broadcast([a[:-2], b[:-2]], at.symbol), a[-2], b[-2]))]


@rule("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(at: At) -> list[Fact]:
    dims = at.dims(0)
    _alone(at, 0)
    if not dims or dims[-1] == at.symbol:
        raise CannotPad("it sums along the open dimension")
    return [Fact((*dims[:-1], at.node.attr_int("N", 0)))]


@rule("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain=MICROSOFT)
def product_of_bytes(at: At) -> list[Fact]:
    """What is quantised while it runs has a scale for all of it, padding included."""
    dims, columns = at.dims(0), at.dims(1)
    _alone(at, 0)
    dynamic = at.node.op == "DynamicQuantizeMatMul" and at.symbol in dims
    if dynamic or len(dims) < 2 or len(columns) < 2 or dims[-1] == at.symbol:
        raise CannotPad("its scale or its sums depend on the open dimension")
    return [Fact((*broadcast([dims[:-2], columns[:-2]], at.symbol), dims[-2], columns[-1]))]


@rule("RotaryEmbedding", domain=MICROSOFT)
def rotary(at: At) -> list[Fact]:
    """The position of what is padded is 0, which every table has."""
    dims, places = at.dims(0), at.dims(1)
    _alone(at, 0, 1)
    token = 1 if len(dims) == 3 else 2
    if at.symbol in (*dims[token + 1 :], *dims[1:token]) or (dims[token] == at.symbol and len(places) != 2):
        raise CannotPad("positions are counted beyond the padding")
    return [Fact(dims)]


@rule("MultiHeadAttention", domain=MICROSOFT)
def attention_to_others(at: At) -> list[Fact]:
    """Queries may be padded where keys and values are those of something else."""
    _alone(at, 0)
    queries, values = at.dims(0), at.dims(2)
    if len(queries) != 3 or at.symbol == queries[2] or any(at.node.proto.input[3:]):
        raise CannotPad("it has other operands than queries, keys and values")
    heads = at.node.attr_int("num_heads", 0)
    width = values[-1] if len(values) == 3 else heads * values[-1] if isinstance(values[-1], int) else None
    keys = at.dims(1)[2 if len(at.dims(1)) == 4 else 1]
    past = Fact((queries[0], heads, keys, None))
    return [Fact((*queries[:2], width)), past, past, Fact((queries[0], heads, queries[1], keys))]
