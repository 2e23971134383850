"""Launches kernels compiled ahead of time through the GPU's driver; neither Triton nor a compiler is needed.

``record`` says what a kernel's machine code needs, ``binary`` is its packaged form on disk, ``arguments`` and
``assumptions`` are about one call's values, ``driver`` with ``cuda`` and ``hip`` speaks to the vendor's library, and
``launch`` puts them together. Importing this package does no work.
"""
