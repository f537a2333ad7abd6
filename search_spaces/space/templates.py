"""The templates that come with autotune: importing a module registers those in it. One line per module."""

from __future__ import annotations

from autotune.search_spaces.operators import (
    attention,
    conv2d_across,
    conv2d_direct,
    conv2d_grouped,
    conv2d_winograd,
    conv2d_winograd_image,
    conv_transpose,
    generic,
    lrn,
    plain,
    recurrent,
)
from autotune.search_spaces.sketch import pieces as sketch_pieces
from autotune.search_spaces.sketch import scaled as sketch_scaled
from autotune.search_spaces.sketch import scaled_digits as sketch_scaled_digits
from autotune.search_spaces.sketch import strassen as sketch_strassen
from autotune.search_spaces.sketch import template as sketch_contraction
from autotune.search_spaces.sketch import winograd as sketch_winograd

TEMPLATE_MODULES = (
    attention,
    conv2d_across,
    conv2d_direct,
    conv2d_grouped,
    conv2d_winograd,
    conv2d_winograd_image,
    conv_transpose,
    generic,
    lrn,
    plain,
    recurrent,
    sketch_contraction,
    sketch_pieces,
    sketch_scaled,
    sketch_scaled_digits,
    sketch_strassen,
    sketch_winograd,
)
