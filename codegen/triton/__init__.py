"""Triton: plans to Python modules that hold a kernel, what launches it, and a check of itself."""
