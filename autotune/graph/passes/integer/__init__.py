"""The rules of `integer-regions`: how a graph of quantised and dequantised values becomes one of integers."""
