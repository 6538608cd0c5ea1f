"""Runs with a main process of their own, and servers that are real processes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftbench.servers.gpu_blocks import pseudo_devices
from draftbench.servers.server_spec import RunContext, ServerSpec
from tests.unit.servers.local_node import SERVER, TWO_NODES, Node, SpecFactory


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node of its own for each test; nothing of it may be left afterwards."""
    node = Node(tmp_path)
    yield node
    node.close()
    assert node.servers_of_this_node() == []


@pytest.fixture
def run(node: Node) -> RunContext:
    """One run on the node."""
    return node.start_run()


@pytest.fixture
def make_spec(tmp_path: Path) -> SpecFactory:
    """Build specs of the minimal server; flags of the server come after the session's name."""

    def make(session: str, *flags: str, **fields: object) -> ServerSpec:
        fields.setdefault("device", "cpu")
        fields.setdefault("devices", pseudo_devices(2) if fields["device"] == "cpu" else TWO_NODES)
        fields.setdefault("environment", {"TEST_NODE": str(tmp_path)})
        settings = {"ready_timeout_s": 60.0, "lease_timeout_s": 60.0, "grace_s": 1.0, "spec_hash": "h1", **fields}
        return ServerSpec(
            session=session,
            command=(sys.executable, str(SERVER), "--port", "{port}", *flags),
            log_path=tmp_path / "logs" / f"{session}.log",
            probe_ids=(1, 2, 3),
            **settings,
        )

    return make
