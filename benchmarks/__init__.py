"""The demo, the benchmarks and the acceptance runner. Not part of the installed package."""
