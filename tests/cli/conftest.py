"""What several tests of commands need."""

import pytest


@pytest.fixture
def log(tmp_path):
    """A log to start from, in the folder where commands run."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = np.random.default_rng(0).normal(size=(2_000, 2)) / 8
    table = pa.table(
        {
            "context": list(x),
            "reward": (x[:, 0] > 0).astype(float),
            "contexts": [[one.tolist(), (-one).tolist()] for one in x],
            "action": np.arange(2_000) % 2,
        }
    )
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=200)
