"""Which operators a host program may call. A program may come from a file, so it may not call just any.

Allowed are operators that compute tensors from tensors and check what they are given. Barred is what reads or writes
files, gives a tensor other memory or another length in place (the memory may be the caller's), takes results to write
to (they are resized), trusts its arguments (sparse and nested tensors without validation, most operators whose name
begins with an underscore), or works on anything but tensors and plain values (objects of TorchScript, storages).
"""

from __future__ import annotations

from typing import Any

LIBRARIES = ("aten", "prims", "attnc")
"""Whose operators a program may call."""
NAMED = ("onnx.region.default", "transformers.grouped_mm_fallback.default")
"""Operators of other libraries that a program may call."""
BARRED = frozenset(
    "backward data format from_file grad record_stream requires_grad_ retain_grad save set set_ set_data".split()
)
"""Names, without overload, of aten and prims."""
BARRED_PARTS = ("mkldnn", "resize", "sparse", "storage")
"""Parts of such names."""
PRIVATE = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _aminmax _assert_async _assert_scalar _assert_tensor_metadata
    _batch_norm_no_update _cdist_forward _conj _conj_copy _conj_physical _convolution _embedding_bag
    _embedding_bag_forward_only _euclidean_dist _fft_c2c _fft_c2r _fft_r2c _functional_assert_async
    _functional_assert_scalar _functional_sym_constrain_range _functional_sym_constrain_range_for_size _fused_rms_norm
    _grouped_mm _int_mm _is_all_true _is_any_true _local_scalar_dense _log_softmax _logcumsumexp _masked_softmax
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _neg_view
    _neg_view_copy _prelu_kernel _reshape_alias _reshape_alias_copy _reshape_copy _safe_softmax
    _scaled_dot_product_attention_math _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_mm _shape_as_tensor _softmax _stack _to_copy _trilinear _unique
    _unique2 _unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_view _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa _upsample_lanczos2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _weight_int8pack_mm _weight_norm _weight_norm_interface
    """.split()
)
"""Operators of aten that begin with one underscore and are harmless."""
_TYPES = frozenset(("Tensor", "int", "float", "bool", "complex", "number", "str", "Device", "Generator"))


def allowed_name(name: str) -> bool:
    """Whether ``library.name.overload`` may be called, as far as a name tells."""
    library, operator, _ = name.split(".")
    if name in NAMED or library == "attnc":
        return True
    if library not in LIBRARIES or operator in BARRED or any(part in operator for part in BARRED_PARTS):
        return False
    return not operator.startswith("_") or operator.startswith("__") or operator in PRIVATE


def allowed_schema(schema: Any) -> bool:
    """Whether an operator's arguments are tensors and plain values only, and none is a result to be written to."""
    return not any(argument.is_out or not _is_plain(str(argument.type)) for argument in schema.arguments)


def _is_plain(kind: str) -> bool:
    for wrapper in ("Optional[", "List["):
        if kind.startswith(wrapper):
            return _is_plain(kind.removeprefix(wrapper).removesuffix("]"))
    return kind in _TYPES
