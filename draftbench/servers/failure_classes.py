"""Why a server failed, from its log and exit code. Pure.

The patterns are lines as SGLang 0.5.17 to 0.5.23, torch, uvicorn, argparse and NCCL print them.
"""

import re
import signal
from enum import StrEnum
from typing import Final


class FailureClass(StrEnum):
    """The kinds of failure of a server; values as in `records.FailureClass`."""

    OUT_OF_MEMORY = "out_of_memory"
    PORT = "port"
    NCCL = "nccl"
    DRAFTER_MISMATCH = "drafter_mismatch"
    UNSUPPORTED_FLAG = "unsupported_flag"
    STARTUP_TIMEOUT = "startup_timeout"
    CRASH = "crash"
    HANG = "hang"
    IDENTITY = "identity"


# The first class with a match wins: what is more specific, or comes earlier in the chain of causes, stands first.
_PATTERNS: Final[tuple[tuple[FailureClass, re.Pattern[str]], ...]] = tuple(
    (failure_class, re.compile("|".join(alternatives), re.MULTILINE))
    for failure_class, alternatives in (
        (
            FailureClass.OUT_OF_MEMORY,
            (
                r"OutOfMemoryError",
                r"CUDA out of memory",
                r"CUDA error: out of memory",
                r"Not enough memory\. Please try to",
                r"DefaultCPUAllocator: (?:can't|not enough) .*memory",
                r"^MemoryError",
                r"std::bad_alloc",
                r"Cannot allocate memory",
            ),
        ),
        (
            FailureClass.PORT,
            (
                r"[Aa]ddress already in use",
                r"EADDRINUSE",
                r"[Pp]ort (?:\d+ )?is already in use",
                r"port at \d+ is not available",
            ),
        ),
        (
            FailureClass.UNSUPPORTED_FLAG,
            (
                r"error: unrecognized arguments",
                r"error: argument .*: (?:invalid choice|expected|invalid \w+ value)",
                r"error: the following arguments are required",
                r"error: ambiguous option",
                r"Unknown speculative algorithm name",
                r"speculative decoding only supports \S+",
                r"--[\w-]+ (?:is not supported|has been removed)",
            ),
        ),
        (
            FailureClass.DRAFTER_MISMATCH,
            (
                r"size mismatch for .*(?:copying a param|checkpoint)",
                r"DFLASH\b.*(?:mismatch|out-of-range|outside the target|requires draft|must (?:be|contain))",
                r"Draft(?:er)?\b.*(?:does not match|mismatch|differs)",
                r"draft.*\b(?:hidden|vocab(?:ulary)?|block)[ _]size\b.*(?:match|differ)",
                r"requires setting --speculative-draft-model-path",
                r"/speculative/[\s\S]*(?:Sizes of tensors must match|shapes cannot be multiplied)",
                r"has no attribute '(?:set_embed|hot_token_id|set_embed_and_head)'",
            ),
        ),
        (
            FailureClass.NCCL,
            (
                r"NCCL error",
                r"ncclInternalError|ncclSystemError|ncclUnhandledCudaError|ncclInvalidUsage|ncclRemoteError",
                r"NCCL WARN",
                r"DistBackendError",
                r"ProcessGroupNCCL.*(?:timeout|terminat|failed)",
            ),
        ),
    )
)

_ERROR_LINE = re.compile(
    r"^\s*(?:\[[^\]]*\]\s*)?(?:[\w.]+\.)?\w*(?:Error|Exception)\b.*|.*\berror:.*|.*Segmentation fault.*"
)


def classify(log_tail: str, exit_code: int | None, *, timed_out: bool = False, hung: bool = False) -> FailureClass:
    """Name the class of a failure.

    What the log says goes before `timed_out`, since a server that waits on a broken NCCL times out too;
    a hang is a hang whatever the log says. `exit_code` is negative for a signal, as in `subprocess`.
    """
    if hung:
        return FailureClass.HANG
    for failure_class, pattern in _PATTERNS:
        if pattern.search(log_tail):
            return failure_class
    if timed_out and exit_code is None:
        return FailureClass.STARTUP_TIMEOUT
    return FailureClass.CRASH


def telling_line(log_tail: str, failure_class: FailureClass) -> str | None:
    """Find the line of the log that says most: the first of the class's own, else the last that names an error."""
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    own = (pattern for name, pattern in _PATTERNS if name == failure_class)
    of_the_class = next((line for pattern in own for line in lines if pattern.search(line)), None)
    return of_the_class or next((line for line in reversed(lines) if _ERROR_LINE.match(line)), None)


def describe_exit(exit_code: int | None) -> str:
    """Say in words how a process ended."""
    if exit_code is None:
        return "is still running"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = " (by hand, or the kernel's out-of-memory killer: see dmesg)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
