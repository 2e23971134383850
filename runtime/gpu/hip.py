"""AMD's driver: HIP keeps contexts by itself and needs no leave to use all of a compute unit's shared memory."""

from __future__ import annotations

from pathlib import Path

import torch

from attnc.runtime.gpu.driver import Api, Driver


class Hip(Driver):
    """``libamdhip64``. PyTorch's wheels bring their own, and a process should hold one."""

    api = Api(
        vendor="HIP",
        libraries=(
            str(Path(torch.__file__).parent / "lib" / "libamdhip64.so"),
            "libamdhip64.so.7",
            "libamdhip64.so.6",
            "libamdhip64.so",
        ),
        load="hipModuleLoadData",
        function="hipModuleGetFunction",
        launch="hipModuleLaunchKernel",
        error_name="hipDrvGetErrorName",
        error_text="hipDrvGetErrorString",
    )

    def is_torch(self) -> bool:
        return torch.version.hip is not None

    def arch(self, index: int) -> str:
        """``gfx942`` of ``gfx942:sramecc+:xnack-``."""
        return str(torch.cuda.get_device_properties(index).gcnArchName).split(":")[0]
