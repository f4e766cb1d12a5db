"""Where the kernels run: on a CUDA device through CuPy, or on this processor through g++ (for
tests, slowly).

Both compile the same source with the same definitions and are called with the same arguments.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbandit.errors import DeviceError, OptionError

SOURCE = Path(__file__).with_name("kernels.cu")  # which includes the other
SOURCES = (SOURCE, SOURCE.with_name("pair.cu"))
# Replications in a block: they share one pool of arms in fast memory.
THREADS = 128
DEVICES = ("cpu", "cuda")

Definitions = tuple[tuple[str, str | int], ...]


class Machine(Protocol):
    """Somewhere kernels run. `arrays` is NumPy or CuPy; `real` is the kernels' number."""

    name: str
    arrays: Any
    real: Any

    def launch(
        self,
        kernel: str,
        definitions: Definitions,
        blocks: int,
        arguments: tuple[Any, ...],
        shared: int = 0,
    ) -> None:
        """Run a kernel over this many blocks of THREADS threads."""

    def finish(self) -> None:
        """Wait until everything launched is done."""


class Cuda:
    """The current CUDA device."""

    real = np.float32

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                "device='cuda' needs CuPy: pip install 'dpbandit[gpu]' (for CUDA 13; for another "
                "version install the cupy "
                "package that matches it), or use device='cpu'"
            ) from error
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"CuPy is installed but finds no CUDA driver ({error}); use device='cpu'"
            ) from error
        if count == 0:
            raise DeviceError(
                "CuPy is installed but there is no CUDA device: check nvidia-smi, or use "
                "device='cpu'"
            )
        self.arrays = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared_memory = int(properties.get("sharedMemPerBlockOptin", 48 * 1024))

    def launch(
        self,
        kernel: str,
        definitions: Definitions,
        blocks: int,
        arguments: tuple[Any, ...],
        shared: int = 0,
    ) -> None:
        run = self._compiled(kernel, definitions)
        if shared > 48 * 1024:
            if shared > self.shared_memory:
                raise OptionError(
                    f"the arm pool takes {shared:,} bytes of shared memory and this device has "
                    f"{self.shared_memory:,}: use "
                    "fewer arms or dimensions, or device='cpu'"
                )
            run.max_dynamic_shared_size_bytes = shared
        run((blocks,), (THREADS,), arguments, shared_mem=shared)

    def finish(self) -> None:
        self.arrays.cuda.Device().synchronize()

    @lru_cache(maxsize=64)  # noqa: B019 - machines live as long as the process
    def _compiled(self, kernel: str, definitions: Definitions) -> Any:
        text, options = self.source(definitions)
        return self.arrays.RawModule(code=text, options=options).get_function(kernel)

    @staticmethod
    def source(definitions: Definitions) -> tuple[str, tuple[str, ...]]:
        """What NVRTC compiles, and with which options."""
        flags = ("-std=c++17", "--use_fast_math", f"-I{SOURCE.parent}", f"-DTHREADS={THREADS}")
        return SOURCE.read_text(), (*flags, *_flags(definitions))


class Host:
    """This processor, through g++: the same arithmetic one replication after another. For tests."""

    name = "g++ on this processor"
    arrays: Any = np

    def __init__(self, real: Any = np.float32) -> None:
        if shutil.which("g++") is None:
            raise DeviceError(
                "g++ is not installed: the kernels cannot be compiled for this processor"
            )
        self.real = real

    def launch(
        self,
        kernel: str,
        definitions: Definitions,
        blocks: int,
        arguments: tuple[Any, ...],
        shared: int = 0,
    ) -> None:
        del blocks, shared  # the shim loops over all replications, and reads the pool where it lies
        word = "double" if self.real is np.float64 else "float"
        library = _library((*definitions, ("REAL", word)))
        getattr(library, kernel)(*(_as_c(argument) for argument in arguments))

    def finish(self) -> None:
        """Nothing is left to wait for."""


@lru_cache(maxsize=64)
def _library(definitions: Definitions) -> ctypes.CDLL:
    # Scores of different arms must not be contracted differently from those of the CPU engine.
    flags = ["-O2", "-std=c++17", "-ffp-contract=off", "-x", "c++", "-shared", "-fPIC"]
    flags += [f"-DTHREADS={THREADS}", *_flags(definitions)]
    text = b"".join(source.read_bytes() for source in SOURCES) + " ".join(flags).encode()
    stamp = hashlib.sha256(text).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / "dpbandit-gpu"
    built = folder / f"{stamp}.so"
    if not built.exists():
        folder.mkdir(exist_ok=True)
        fresh = built.with_suffix(f".{id(flags)}")
        command = ["g++", *flags, str(SOURCE), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        fresh.rename(built)
    return ctypes.CDLL(str(built))


def _flags(definitions: Definitions) -> list[str]:
    return [f"-D{name}={value}" for name, value in definitions]


_C_TYPES = {np.int32: ctypes.c_int, np.uint64: ctypes.c_ulonglong, np.float64: ctypes.c_double}


def _as_c(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data_as(ctypes.c_void_p)
    return _C_TYPES[type(argument)](argument)


def machine(device: str) -> Machine:
    """The machine of that name; 'host' is for tests."""
    if device == "cuda":
        return _cuda()
    if device == "host":
        return Host()
    raise OptionError(f"device must be 'cpu' or 'cuda', not {device!r}")


@lru_cache(maxsize=1)
def _cuda() -> Cuda:
    return Cuda()


def to_numpy(array: Any) -> NDArray[Any]:
    """The array in this machine's memory."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.get())
