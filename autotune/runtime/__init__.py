"""What runs kernels: the native runtime, thread pools, buffers."""
