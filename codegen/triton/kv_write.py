"""How the kernel that writes rows into pages (``kernels/kv_write.py``) is compiled, and which stores a GPU has."""

from __future__ import annotations

from attnc.codegen.paged_plan import I4_GROUP
from attnc.codegen.targets import Capability, capability
from attnc.codegen.triton.expressions import element_type
from attnc.codegen.triton.launch import Launch, Parameter

STORE_TYPES = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "i8", "f8e4m3": "fp8e4nv", "i4": "u8"}
"""Store → Triton's name of the elements of its pages."""
_STORES = {"i8": 1, "f8e4m3": 2, "i4": 3}
_COUNTS = ("tokens", "page_size")
_STRIDES = ("x_token", "x_head", "x_col", "page", "page_head", "page_slot", "scale_page", "scale_head", "scale_slot")
_WARPS = 4
_ELEMENTS = 2048
"""Of a tile: sixteen rows of 128 features."""


def launch_kv_write(target: str, store: str, dtype: str, features: int) -> Launch:
    """How the kernel is compiled ahead of time for rows of ``dtype``.

    Rows, pages and their scales are assumed to begin at addresses that are multiples of 16 bytes, with contiguous
    features and other strides that are multiples of 16 elements; scales and slots to be contiguous. Raises ValueError
    for a target without Triton kernels, or whose GPU doesn't convert to the store.
    """
    check_stores(capability(target), (store,))
    columns = max(I4_GROUP, 1 << max(0, features - 1).bit_length())
    scale = {"i4": "fp16", "i8": "fp32", "f8e4m3": "fp32"}.get(store, STORE_TYPES[store])
    pointers = {"X": element_type(dtype), "Pages": STORE_TYPES[store], "Scale": scale, "Slots": "i64"}
    found = [Parameter(name, f"*{kind}", "aligned") for name, kind in pointers.items()]
    found += [Parameter(name, "i32") for name in _COUNTS]
    loose = ("scale_page", "scale_head", "scale_slot")
    for name in _STRIDES:
        found.append(Parameter(name, "i32", "one" if name == "x_col" else "nothing" if name in loose else "aligned"))
    rows = max(1, _ELEMENTS // columns)
    constants = {"STORE": _STORES.get(store, 0), "D": features, "COLUMNS": columns, "ROWS": rows}
    return Launch("kv_write", tuple(found), constants, _WARPS, 1)


def check_stores(target: Capability, stores: tuple[str, ...]) -> None:
    """Raises ValueError for a target without Triton kernels, or whose GPU doesn't convert from and to a store."""
    if target.language != "triton":
        raise ValueError(f"{target.name} has no Triton kernels")
    if "f8e4m3" in stores and target.gpu is not None and not target.gpu.float8:
        raise ValueError(f"pages of f8e4m3 on {target.name}: its GPU doesn't convert float8; i8 takes as much room")
