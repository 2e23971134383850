"""A check before every launch. Constants of the plan (SIDES, SIDE_READS, NUM_SIZES) stand above this text."""


def check_sides(sides, sizes, length):
    """Raises ValueError for side operands or sizes that aren't the plan's."""
    if len(sides) != len(SIDES) or len(sizes) != NUM_SIZES:
        given = f"got {len(sides)} and {len(sizes)}"
        raise ValueError(f"expected {len(SIDES)} side operands and {NUM_SIZES} sizes, {given}")
    for i, (side, (dtype, rank)) in enumerate(zip(sides, SIDES)):
        if side.dtype is not dtype or side.dim() != rank:
            raise ValueError(f"side operand {i} is {side.dtype} of rank {side.dim()}, expected {dtype} of rank {rank}")
    for i, dim, axis in SIDE_READS:
        if sides[i].shape[dim] < length[axis]:
            raise ValueError(f"dimension {dim} of side operand {i} is shorter than axis {axis}, {length[axis]}")
