"""Machine code of emitted kernels: compiled ahead of time, read back, judged."""
