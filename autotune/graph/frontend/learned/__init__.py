"""Operators of classical machine learning (ai.onnx.ml), which exporters of scikit-learn, XGBoost and LightGBM write.

One file per family. Strings and maps are for the host: `autotune.graph.host.labels`.
"""

from autotune.graph.frontend.learned import features, labels, linear, support_vectors, trees

FAMILIES = (features, labels, linear, support_vectors, trees)  # importing a family registers its converters

__all__ = ["FAMILIES"]
