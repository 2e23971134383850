"""Compiled models in one file, ``model.attnc``: written, checked, loaded and run. Needs torch and numpy only.

The file is a zip without compression whose entries begin at multiples of 64 bytes, so that they can be mapped into
memory. ``container`` reads and ``writer`` writes it; ``manifest`` says what is in it:

    manifest.json              versions, inputs, outputs, targets, kernels, and size and SHA-256 of every other entry
    program.json               the host program (:mod:`attnc.runtime.host_program`)
    graph.ir                   the IR after the last pass, to read
    weights.safetensors        the program's constants
    plans/<digest>.json        a kernel plan
    kernels/<name>.cpp|.py     its source
    binaries/<target>/<name>   its machine code for one target; a GPU's has a record beside it
    onnx/<sha256>.onnx         a blob that a step names in an argument

All JSON is plain: numbers are integers or finite floats, 63-bit digests are decimal strings outside of programs. A file
with an entry that the manifest doesn't name, or the other way round, is refused.
"""
