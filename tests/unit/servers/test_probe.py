"""Identity and readiness questions, and the memory baseline."""

import json
import socket
from pathlib import Path

import pytest

from draftbench.errors import LeaseError, ServerError
from draftbench.servers.gpu_blocks import pseudo_devices
from draftbench.servers.gpu_monitor import wait_for_baseline
from draftbench.servers.probe import fetch_server_info, identity_differences, is_healthy, probe_generation
from draftbench.servers.server_log import append_line, read_log_tail
from draftbench.servers.server_spec import ServerSpec

INFO = {
    "tp_size": 4,
    "speculative_algorithm": "DFLASH",
    "cuda_graph_config": {"decode": {"max_bs": 8}},
    "dotted.key": 1,
}


@pytest.mark.parametrize(
    ("expected", "differences"),
    [
        ({}, []),
        ({"tp_size": 4, "cuda_graph_config.decode.max_bs": 8, "dotted.key": 1}, []),
        ({"tp_size": 8}, ["tp_size is 4, planned 8"]),
        ({"page_size": 1}, ["page_size is missing, planned 1"]),
        ({"cuda_graph_config.decode.bs": 1}, ["cuda_graph_config.decode.bs is missing, planned 1"]),
        ({"tp_size.x": 1}, ["tp_size.x is missing, planned 1"]),
        (
            {"speculative_algorithm": None, "tp_size": 1},
            ["speculative_algorithm is 'DFLASH', planned None", "tp_size is 4, planned 1"],
        ),
    ],
)
def test_identity_differences(expected: dict[str, object], differences: list[str]) -> None:
    """Each difference is named with both values; a dotted key reaches into the reply."""
    assert identity_differences(INFO, expected) == differences


def test_a_recorded_reply_of_sglang_holds_the_planned_keys() -> None:
    """Keys as SGLang 0.5.17 reports them (a part of a recording with the shipped drafter on one H200)."""
    info = json.loads(
        '{"version":"0.5.17","tp_size":1,"page_size":1,"attention_backend":"triton","speculative_algorithm":"DFLASH",'
        '"speculative_num_draft_tokens":8,"cuda_graph_config":{"decode":{"backend":"full","max_bs":8}}}'
    )
    assert identity_differences(info, {"speculative_num_draft_tokens": 8, "cuda_graph_config.decode.max_bs": 8}) == []


def test_a_port_without_a_server_is_not_healthy_and_has_no_tokens() -> None:
    """A refused connection is an answer to the readiness loop, and an error to who needs the reply."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert not is_healthy(port)
        assert "gave no answer" in (probe_generation(port, (1,), 4, 1.0) or "")
        with pytest.raises(ServerError, match="gave no answer"):
            fetch_server_info(port)


def test_a_proxy_in_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback requests stay on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.socket() as unused:
        proxy.setblocking(False)
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert not is_healthy(unused.getsockname()[1])
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_memory_is_back_when_every_gpu_is_near_its_baseline() -> None:
    """256 MiB of other use are let pass; one GPU above that is waited for, and told at the timeout."""
    readings = iter([[9000, 500], [300, 700], [300, 500]])
    assert wait_for_baseline(lambda: next(readings), [100, 400], 10.0, interval_s=0.0)
    assert list(readings) == []
    assert not wait_for_baseline(lambda: [100, 657], [100, 400], 0.0)


def test_the_log_tail_is_of_this_instance_only(tmp_path: Path) -> None:
    """What an earlier instance wrote does not explain this one's failure; of a long log the end is kept."""
    log = tmp_path / "server.log"
    append_line(log, "first")
    log.open("a").write("CUDA out of memory\n")
    offset = append_line(log, "second")
    assert read_log_tail(log, offset) == ""
    log.open("a").writelines(f"line {number}\n" for number in range(5000))
    assert read_log_tail(log, offset).splitlines()[-1] == "line 4999"
    assert len(read_log_tail(log, offset).splitlines()) == 60


def spec(**fields: object) -> ServerSpec:
    """Build a spec with the least that is needed."""
    settings = {"session": "s", "spec_hash": "h", "command": ("server",), "device": "cpu", "probe_ids": (1,), **fields}
    return ServerSpec(devices=pseudo_devices(2), log_path=Path("s.log"), **settings)


def test_ports_are_filled_in_and_other_braces_stay() -> None:
    """JSON arguments have braces of their own."""
    command = ("server", "--port", "{port}", "--nccl-port={nccl_port}", '{"decode": {"max_bs": 8}}')
    filled = ["server", "--port", "21000", "--nccl-port=21001", '{"decode": {"max_bs": 8}}']
    assert spec(command=command).command_line(21000, 21001) == filled
    assert spec(command=command).needs_nccl_port
    assert not spec(command=command[:3]).needs_nccl_port


@pytest.mark.parametrize("session", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_session_names_files(session: str) -> None:
    """Keys that could leave the state folder are refused."""
    with pytest.raises(ValueError, match="session"):
        spec(session=session)


def test_a_spec_travels_as_json() -> None:
    """What the main process writes is what a job reads."""
    original = spec(expected_info={"tp_size": 1}, environment={"A": "b"})
    assert ServerSpec.model_validate_json(original.model_dump_json()) == original
    assert ServerSpec.model_validate(original.model_dump(mode="json")) == original


def test_cpu_servers_need_no_tp_devices() -> None:
    """Tensor parallelism is held against GPUs only."""
    assert spec(tp=4).takes_all_devices
    with pytest.raises(LeaseError):
        spec(tp=4, device="cuda")
