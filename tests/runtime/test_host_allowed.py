"""Which operators a program may call: a trap beside each that must stay."""

from __future__ import annotations

import pytest
import torch

from attnc.runtime.host_names import allowed

BARRED = """
aten.save.default aten.from_file.default aten.from_file.out aten.set_.source_Tensor_storage_offset aten.resize_.default
aten.resize_as_.default aten.set_data.default aten._resize_output_.default aten.add.out aten.cat.out aten.append.t
aten.list.t aten.format.default aten._print.default aten._sparse_coo_tensor_unsafe.default aten.sparse_resize_.default
aten._nested_view_from_buffer.default aten.to_mkldnn.default aten._pin_memory.default aten.record_stream.default
aten.requires_grad_.default aten._foobar.default aten.backward.default
prims.resize.default
""".split()
ALLOWED = """
aten.add.Tensor aten.cat.default aten.copy_.default aten.index.Tensor aten.index_put_.default aten._to_copy.default
aten.__and__.Tensor aten.as_strided.default aten._softmax.default aten.scaled_dot_product_attention.default
aten.embedding.default aten.full.default aten.randn.default aten.sym_size.int aten._assert_scalar.default
aten.lstm.input aten.einsum.default aten.convolution.default aten.slice_scatter.default aten.reshape.default
prims.convert_element_type.default
""".split()


def operator(name: str) -> torch._ops.OpOverload:
    library, packet, overload = name.split(".")
    found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, library), packet), overload)
    return found


@pytest.mark.parametrize("name", BARRED)
def test_barred(name: str) -> None:
    assert not allowed(operator(name), name)


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str) -> None:
    assert allowed(operator(name), name)


def test_no_operator_that_is_allowed_takes_a_file_or_a_result_to_write_to() -> None:
    """Of all that this torch has, whatever later releases bring."""
    count = 0
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        name = f"aten.{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        try:
            found = operator(name)
        except AttributeError:
            continue
        if allowed(found, name):
            count += 1
            assert not any(argument.is_out or "file" in argument.name for argument in schema.arguments), name
            assert "resize" not in name and "storage" not in name
    assert count > 1000
