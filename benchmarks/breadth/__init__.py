"""Breadth: hundreds of architectures as exporters write them, each compiled, compared and timed.

`python -m benchmarks.breadth FOLDER` exports, checks and times; see `benchmarks.breadth.__main__`. Needs the extra
`breadth`. Weights are random and seeded, so nothing is downloaded.
"""
