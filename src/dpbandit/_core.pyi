import numpy as np
from numpy.typing import NDArray

def arch() -> str: ...
def noise(
    name: str, key: int, index: int, scale: float, value: NDArray[np.float64]
) -> NDArray[np.float64]: ...
def release_scores(
    name: str,
    value: NDArray[np.float64],
    zero: NDArray[np.float64],
    one: NDArray[np.float64],
    scales: NDArray[np.float64],
    key: int,
    first: int,
    count: int,
) -> NDArray[np.float64]: ...
