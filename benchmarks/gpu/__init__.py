"""One script for a machine with a GPU: kernels emitted here are checked and timed there, without our compiler."""
