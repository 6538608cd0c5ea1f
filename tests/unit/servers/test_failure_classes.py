"""Failure classes on lines that real servers printed."""

import pytest

from draftbench.records import FailureClass as RecordedClass
from draftbench.servers.failure_classes import FailureClass, classify, describe_exit, telling_line

# Where a line comes from: [S] SGLang 0.5.17's source, [I] a public issue of sgl-project/sglang,
# [P] PyTorch, [A] argparse, [U] uvicorn.
LINES = [
    # [I] 5285
    (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 7 has a total "
        "capacity of 95.00 GiB",
        "out_of_memory",
    ),
    # [P]
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 6 has a total capacity of "
        "44.53 GiB of which 448.00 KiB is free.",
        "out_of_memory",
    ),
    # [S]
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "out_of_memory"),
    # [P]
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)",
        "out_of_memory",
    ),
    ("MemoryError", "out_of_memory"),
    # [U]
    (
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
        "port",
    ),
    # [P]
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "port",
    ),
    # [S]
    ("Port is already in use. dist_init_port=31001 port_base=31002 nccl_port=29500", "port"),
    ("ValueError: nccl_port at 29500 is not available in 30 seconds.", "port"),
    # [I] 8974
    ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", "nccl"),
    # [P]
    (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, "
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5",
        "nccl",
    ),
    # [I] 5594
    (
        "h100-15:139:1092 [7] socket.c:485 NCCL WARN socketStartConnect: Connect to 10.0.0.82<38455> failed : Software "
        "caused connection abort",
        "nccl",
    ),
    # [S]
    (
        "ValueError: DFLASH fc.weight shape mismatch. This usually means the draft checkpoint's number of context "
        "features (K) does not match this config. Expected fc.weight.shape=(576, 2880)",
        "drafter_mismatch",
    ),
    (
        "ValueError: DFLASH target_layer_ids contains an out-of-range layer id. target_layer_ids[4]=33, "
        "target_num_layers=30.",
        "drafter_mismatch",
    ),
    (
        "ValueError: DFLASH mask_token_id is outside the target vocab size. mask_token_id=151669, vocab_size=49152.",
        "drafter_mismatch",
    ),
    # [I] 36528
    ("AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'", "drafter_mismatch"),
    # [P]
    (
        "RuntimeError: size mismatch for fc.weight: copying a param with shape torch.Size([576, 2880]) from checkpoint",
        "drafter_mismatch",
    ),
    # [A]
    ("launch_server.py: error: unrecognized arguments: --speculative-ddtree-budget 16", "unsupported_flag"),
    (
        "launch_server.py: error: argument --attention-backend: invalid choice: 'tritn' (choose from 'triton', ...)",
        "unsupported_flag",
    ),
    # [S]
    ("ValueError: Unknown speculative algorithm name: DDTREE", "unsupported_flag"),
    ("ValueError: DFLASH speculative decoding only supports CUDA and NPU devices.", "unsupported_flag"),
    # nobody's pattern
    ("ModuleNotFoundError: No module named 'sglang'", "crash"),
    ("", "crash"),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_real_lines(line: str, expected: str) -> None:
    """Each line, between lines of an ordinary start, gives its class and is the line that is shown."""
    tail = "\n".join(
        [
            "[2026-11-30 10:00:00] server_args=ServerArgs(model_path='/models/target', port=31000, nccl_port=29500, "
            "speculative_algorithm='DFLASH', speculative_draft_model_path='/models/drafter')",
            "[2026-11-30 10:00:01 TP0] sglang is using nccl==2.27.5",
            "[2026-11-30 10:00:09 TP0] Capture cuda graph begin. avail mem=8.38 GB",
            line,
            "[2026-11-30 10:00:10] Received sigquit from a child process. It usually means the child failed.",
        ]
    )
    failure_class = classify(tail, 1)
    assert failure_class == expected
    if line:
        assert telling_line(tail, failure_class) == line


def test_a_shape_error_inside_speculative_code_is_a_drafter_mismatch() -> None:
    """The traceback of sgl-project/sglang issue 24215: a drafter of another hidden size."""
    tail = (
        'File "/opt/sglang/python/sglang/srt/speculative/eagle_info.py", line 848, in merge_batch\n'
        "    self.hidden_states = torch.cat(\n"
        "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 4096 but got size 2048"
    )
    assert classify(tail, 1) == "drafter_mismatch"
    assert classify(tail.replace("/speculative/", "/layers/"), 1) == "crash"
    assert (telling_line(tail, FailureClass.DRAFTER_MISMATCH) or "").startswith("RuntimeError: Sizes")


def test_a_timeout_names_its_cause_where_the_log_has_one() -> None:
    """A server still alive at the timeout is a start-up timeout, unless its log says NCCL."""
    assert classify("loading weights", None, timed_out=True) == "startup_timeout"
    assert classify("RuntimeError: NCCL error: unhandled system error", None, timed_out=True) == "nccl"


def test_a_hang_is_a_hang_whatever_the_log_says() -> None:
    """Old warnings in the log of a server that served for hours explain nothing."""
    assert classify("NCCL WARN something harmless", None, hung=True) == "hang"


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [(3, "exited with code 3"), (-11, "was ended by SIGSEGV"), (-9, "out-of-memory killer"), (None, "still running")],
)
def test_exit_codes_in_words(exit_code: int | None, words: str) -> None:
    """Negative codes are signals, as `subprocess` gives them."""
    assert words in describe_exit(exit_code)


def test_every_class_is_one_that_a_record_may_have() -> None:
    """The names of the servers and those of the failure records are the same."""
    assert {str(failure_class) for failure_class in FailureClass} <= set(RecordedClass.__args__)
