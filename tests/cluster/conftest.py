"""A real Ray cluster of two nodes on this machine, for the tests that need one."""

import os
import secrets
import socket

import pytest

# A token of our own, for this process and its children: otherwise Ray makes one in the home folder. No reports to its makers.
os.environ |= {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
}

# Ray's least is 75 MiB of shared memory for each node.
SHAPE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class TwoNodes:
    """A head and a worker node with one core each. `address` is for a process on a node, `client` for one anywhere."""

    def __init__(self, cluster_utils):
        port = free_port()
        self.cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**SHAPE, "ray_client_server_port": port}
        )
        self.add_second()
        self.address, self.client = self.cluster.address, f"ray://127.0.0.1:{port}"

    def add_second(self):
        self.second = self.cluster.add_node(**SHAPE)
        self.cluster.wait_for_nodes()

    def kill_second(self):
        """As a power cut would: no process of the node has a chance to say goodbye."""
        self.cluster.remove_node(self.second, allow_graceful=False)

    def stop(self):
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes():
    found = TwoNodes(
        pytest.importorskip("ray.cluster_utils", reason="the extra 'cluster' is not installed")
    )
    yield found
    found.stop()
