"""Rules of operators of ONNX Runtime's own, which its optimiser writes between those that hold caches."""

from __future__ import annotations

from autotune.graph.frontend.buckets.at import At, rule
from autotune.graph.frontend.buckets.facts import CannotPad, Fact, broadcast
from autotune.graph.frontend.buckets.rules import elementwise, gemm, matmul
from autotune.graph.frontend.node import MICROSOFT

rule("BiasGelu", "FastGelu", "GatedAdd", "Gelu", "QuickGelu", "ScaledSiLU", domain=MICROSOFT)(elementwise)
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


@rule("GatedRMSNorm", domain=MICROSOFT)
def gated_normalize(at: At) -> list[Fact]:
    _alone(at, 0, 2)
    dims = at.dims(0)
    if dims[-1] == at.symbol or at.dims(2) != dims:
        raise CannotPad("it normalises over the open dimension")
    return [Fact(dims)]


@rule("MoE", "QMoE", domain=MICROSOFT)
def mixture(at: At) -> list[Fact]:
    """Each token goes its own way through the experts; what is padded, too."""
    weights = 14  # of QMoE, beside the router's numbers
    _alone(at, 0, 1, *([weights] if at.node.op == "QMoE" else ()))
    dims, router = at.dims(0), at.dims(1)
    others = [at.dims(n) for n in (weights,) if n < len(at.facts) and at.facts[n] is not None and at.node.op == "QMoE"]
    tokens = tuple(extent for extent in dims[:-1] if extent != 1)
    if at.symbol in (dims[-1], router[-1]) or any(one != router for one in others):
        raise CannotPad("it multiplies along the open dimension")
    if at.symbol in (*tokens, *router) and (len(router) != 2 or tokens != router[:1]):
        raise CannotPad("it joins the open dimension with others")
    return [Fact(dims)]


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
