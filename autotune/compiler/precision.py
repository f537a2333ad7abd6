"""Precision: what a user asks for of an f32 model's products, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import InputError
from autotune.tensor.dtype import DType

NAMES = ("model", "f32", "bf16", "f16", "auto")
MAX_ERROR = 1e-2


@dataclass(frozen=True, slots=True)
class Precision:
    """In which floats the products of a model are computed; sums, norms and softmax are f32 always.

    Attributes:
        name: "model", as it says: 16 bits where its own products have them and are faster by it; "f32"; "bf16" or "f16"
            for all products that can be; "auto" for those in bf16 that are faster by it.
        max_error: how far the outputs may be off, of their range, on sample inputs: in f32 from those in float64, in 16
            bits, where that is a choice, from those in f32. None: no matter how far.
    """

    name: str = "model"
    max_error: float | None = None

    @staticmethod
    def parse(name: str, max_error: float | None = None) -> Precision:
        """
        Raises:
            InputError: there is no such precision, or the error is no positive number.
        """
        if name not in NAMES:
            raise InputError(f"there is no precision {name!r}; there are {', '.join(NAMES)}")
        if max_error is not None and not (isinstance(max_error, (int, float)) and 0 < max_error < 1):
            raise InputError(f"the largest error {max_error!r} is no share of a range; give for example {MAX_ERROR}")
        if max_error is not None and name in ("f16", "bf16"):
            raise InputError(f"a largest error is what precisions model, f32 and auto heed, not {name}")
        return Precision(name, MAX_ERROR if max_error is None and name == "auto" else max_error)

    def dtype(self, own: str) -> DType:
        """Of the operands of narrow products, in a model whose own products are of floats `own`."""
        return DType.bf16 if self.name == "auto" else DType(own if self.name == "model" else self.name)


AS_THE_MODEL = Precision()


@dataclass(frozen=True, slots=True)
class Precise:
    """How a program was made precise enough.

    Attributes:
        asked: the name of the precision.
        dtype: of the operands of narrow products.
        narrow: how many products are; `products`: how many could be.
        rounded: how many of those are convolutions by tiles that are rounded once more when they are transformed.
        error: of the outputs, of their range, on sample inputs, as `Precision.max_error`; None where nobody looked.
        note: why there are not more, or nothing was looked at; empty where there is nothing to say.
    """

    asked: str = "model"
    dtype: str = "f32"
    narrow: int = 0
    products: int = 0
    rounded: int = 0
    error: float | None = None
    note: str = ""

    def __str__(self) -> str:
        if not self.narrow and not self.error:
            return "f32" + (f" ({self.note})" if self.note else "")
        text = f"{self.dtype} in {self.narrow} of {self.products} products" if self.narrow else "f32"
        text += f" ({self.rounded} by tiles that it rounds, too)" if self.rounded else ""
        error = "" if self.error is None else f", off by {self.error:.1e} of the range on sample inputs"
        return text + error + (f"; {self.note}" if self.note else "")


AS_IT_IS = Precise()
