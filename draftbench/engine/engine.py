"""The engine: requests in, token events out; one call of `step` is one prefill or one batched decode step."""

from typing import Any

from draftbench.engine.interface import EngineSettings, GenerationRequest, TokenEvent


class Engine:
    """Continuous batching over one target and, for DFLASH and DDTREE, one drafter.

    Not thread-safe: one thread owns it.
    Raises ModelError at construction if a checkpoint is missing or the two do not match.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; raises RequestRefusedError if it cannot be served as asked."""
        raise NotImplementedError

    def abort(self, request_id: str) -> None:
        """End a request at the next step with finish "abort"; unknown or finished ids are ignored."""
        raise NotImplementedError

    def step(self) -> list[TokenEvent]:
        """Do one prefill or one decode step for all running requests; an idle engine returns no events."""
        raise NotImplementedError

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        raise NotImplementedError

    @property
    def running_count(self) -> int:
        """Requests that hold a slot now."""
        raise NotImplementedError

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a slot."""
        raise NotImplementedError

    def flush_cache(self) -> bool:
        """Forget all kept prefixes; refused (False) while any request is running or waiting."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The resolved settings: dtype, device, threads, packed, block size and its rule, budget, verify width, versions."""
        raise NotImplementedError
