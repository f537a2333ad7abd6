"""Tuning on several machines: builders and runners are Dask workers. See docs/how-to/tune-on-several-machines.md.

Only `engine` and `host` import Dask, and only who tunes on a cluster imports them.
"""
