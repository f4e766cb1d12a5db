"""The CUDA source compiles as CuPy compiles it, without a GPU: where the wheel nvidia-cuda-nvrtc is."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

import pytest

from dpbandit.gpu.machines import Cuda

pytestmark = pytest.mark.slow


def library():
    found = find_spec("nvidia")
    places = [] if found is None else [Path(p) for p in found.submodule_search_locations or ()]
    files = [file for place in places for file in place.rglob("libnvrtc.so*")]
    if not files:
        pytest.skip("nvidia-cuda-nvrtc is not installed: nothing compiles for a GPU here")
    return ctypes.CDLL(str(files[0]))


@pytest.mark.parametrize(
    "definitions",
    [
        (("PAIR", 1), ("DIM", 1), ("VERSIONS", 5)),
        (("ALGORITHM", 7), ("DIM", 1)),
        (("ALGORITHM", 5), ("DIM", 10), ("SHOWN", 10)),
    ],
)
def test_kernels_compile_for_a_gpu(definitions):
    nvrtc = library()
    text, options = Cuda.source(definitions)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    words = [option.encode() for option in (*options, "--gpu-architecture=sm_90")]
    code = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert code == 0, log.value.decode()
