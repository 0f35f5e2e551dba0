"""Settings all tests share."""

import pytest
from hypothesis import settings

# Compiling at first use takes longer than any example: time is not what these tests are about.
settings.register_profile("kernelweave", deadline=None)
settings.load_profile("kernelweave")


@pytest.fixture(scope="session")
def client():
    """Two Dask workers in threads of this process: quick to start, and all else as on a real cluster."""
    distributed = pytest.importorskip("distributed", reason="banks on a cluster need Dask: kernelweave[cluster]")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client
