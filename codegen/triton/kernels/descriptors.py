"""Tensor descriptors of keys and values, by which hardware copies their tiles.

Constants of the plan (AXES, OUTER_AXES, DESCRIPTORS, …) and ``head_parts`` stand above this text.
"""

from triton.tools.tensor_descriptor import TensorDescriptor


def descriptor(operand, axes):
    """Outer axes × rows × features of k or v; None where hardware can't copy its tiles.

    It wants a head dimension in one block, contiguous features, and an address and other strides that are multiples of
    16 bytes. A stride of 0 stands for an axis that is broadcast.
    """
    outer = [i for i, axis in enumerate(axes) if axis in OUTER_AXES]
    feature = next(i for i, axis in enumerate(axes) if axis in ("d", "e"))
    tensor = operand.permute(*outer, axes.index("k"), feature)
    *strides, last = (stride * tensor.element_size() for stride in tensor.stride())
    columns, more = head_parts(tensor.shape[-1])
    if more or columns > 256 or tensor.dim() > 5 or 0 in tensor.shape:
        return None
    if last != tensor.element_size() or any(s % 16 or not 0 < s < 1 << 40 for s in strides) or tensor.data_ptr() % 16:
        return None
    return TensorDescriptor.from_tensor(tensor, [1] * len(outer) + [BLOCK_N.value, columns])


def by_descriptor(q, k, v, *others):
    """Arguments of the kernel, with k and v as tensor descriptors where those pay and both operands allow it."""
    if not DESCRIPTORS:
        return q, k, v, *others
    found = descriptor(k, AXES["k"]), descriptor(v, AXES["v"])
    return q, *((k, v) if None in found else found), *others
