"""What guards say about the values of quasi-affine forms."""

from __future__ import annotations

import math

from autotune.tensor.linear import UNBOUNDED, Div, Linear, Ranges


def least(form: Linear, ranges: Ranges, facts: tuple[Linear, ...], depth: int = 3) -> int:
    """A lower bound of `form` where all `facts` are >= 0 (any number, when they never are)."""
    if any(fact.range(ranges)[1] < 0 for fact in facts):
        return UNBOUNDED[1]
    best = _without_divisions(form, ranges, facts, depth)
    if depth == 0 or best >= 0:
        return best
    for n, fact in enumerate(facts):
        others = facts[:n] + facts[n + 1 :]
        for term, c in fact.terms.items():
            k = form.terms.get(term, 0)
            if k * c > 0:
                # form * a = fact * b + rest, in which the term cancels, and fact >= 0.
                g = math.gcd(k, c)
                a, b = abs(c) // g, abs(k) // g
                rest = form * a - fact * b
                if len(rest.terms) < len(form.terms) + len(fact.terms):
                    best = max(best, -(-least(rest, ranges, others, depth - 1) // a))
                    if best >= 0:
                        return best
    return best


def _without_divisions(form: Linear, ranges: Ranges, facts: tuple[Linear, ...], depth: int) -> int:
    """A lower bound, with one quotient after the other replaced by what the facts say of its numerator."""
    best = form.range(ranges)[0]
    for term, c in form.terms.items() if depth else ():
        if not isinstance(term, Div):
            continue
        rest = Linear(form.const, {t: x for t, x in form.terms.items() if t != term})
        if all(x % c == 0 for x in (rest.const, *rest.terms.values())):
            # c * (arg // d + r) = c * ((arg + d * r) // d)
            whole = term.arg + Linear(rest.const // c, {t: x // c for t, x in rest.terms.items()}) * term.divisor
            tail = 0
        else:
            whole, tail = term.arg, least(rest, ranges, facts, depth - 1)
        if c > 0:
            best = max(best, tail + c * (least(whole, ranges, facts, depth - 1) // term.divisor))
        else:
            best = max(best, tail + c * (-least(whole * -1, ranges, facts, depth - 1) // term.divisor))
    return best
