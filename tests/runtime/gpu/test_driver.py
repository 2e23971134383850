from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gpu_fakes import Fake

from attnc.runtime.gpu import cuda as cuda_module
from attnc.runtime.gpu.arguments import TensorDescriptor
from attnc.runtime.gpu.cuda import ELEMENT_TYPES, Cuda
from attnc.runtime.gpu.driver import DriverMissing, open_library
from attnc.runtime.gpu.hip import Hip
from attnc.runtime.gpu.record import Box


@pytest.mark.parametrize(("kind", "vendor"), [(Cuda, "CUDA"), (Hip, "HIP")])
def test_a_missing_driver_is_said_in_a_sentence(kind: type[Cuda | Hip], vendor: str, tmp_path: Path) -> None:
    with pytest.raises(DriverMissing, match=rf"the {vendor} driver library isn't on this machine \(.*none\.so"):
        kind(str(tmp_path / "none.so"))


def test_the_first_library_that_loads_is_taken(libraries: dict[str, Path]) -> None:
    names = ("libattnc-is-not-there.so", str(libraries["cuda"]))
    assert open_library("CUDA", names)._name == names[1]


def test_a_library_in_use_goes_first(libraries: dict[str, Path], cuda: Fake, tmp_path: Path) -> None:
    """Two copies of one runtime in a process would not know of each other's devices."""
    fresh = tmp_path / "fresh.so"
    fresh.write_bytes(libraries["cuda"].read_bytes())
    assert open_library("CUDA", (str(fresh), cuda.path))._name == cuda.path


def test_a_library_without_a_call_is_too_old(libraries: dict[str, Path]) -> None:
    with pytest.raises(DriverMissing, match="has no hipModuleLoadData: it is too old"):
        Hip(str(libraries["cuda"]))


def test_an_old_driver_serves_kernels_without_descriptors(libraries: dict[str, Path]) -> None:
    driver = Cuda(str(libraries["old"]))
    value = TensorDescriptor(torch.zeros(64), (8, 8), (8, 1), (8, 8))
    with pytest.raises(DriverMissing, match="has no cuTensorMapEncodeTiled: it is too old"):
        driver.encode_tensor_map("fp32", value, Box((8, 8), 0))


def test_numbers_are_those_of_the_header(cuda: Fake) -> None:
    of_header = [cuda.library.fake_type(i) for i in range(7)]
    assert [ELEMENT_TYPES[kind] for kind in ("u8", "i32", "fp16", "fp32", "fp64", "bf16", "i64")] == of_header
    mine = (cuda_module._INTERLEAVE_NONE, cuda_module._L2_PROMOTION_128B, *cuda_module._OUTSIDE.values())
    assert [cuda.library.fake_enumeration(i) for i in range(4)] == list(mine)


def test_a_tensor_map_of_rank_one_has_no_strides(cuda: Fake) -> None:
    value = TensorDescriptor(torch.zeros(64), (50,), (1,), (16,))
    encoded = cuda.driver().encode_tensor_map("fp32", value, Box((16,), 0))
    assert encoded == bytes((7 + 3 * i) % 256 for i in range(128))
    (call,) = cuda.calls()
    sizes, box, steps = (50).to_bytes(8, "little").hex(), "10000000", "01000000"
    assert call[1:] == ["7", "1", str(value.base.data_ptr()), sizes, box, steps, "0", "0", "2", "0"]
