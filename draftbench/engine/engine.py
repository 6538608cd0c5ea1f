"""The engine: requests in, token events out; one call of `step` is one prefill or one batched decode step."""

import platform
from collections import deque
from typing import Any

import numpy as np
import torch

from draftbench.engine.checkpoint import DrafterConfig, TargetConfig, read_drafter_config, read_target_config
from draftbench.engine.decoding import AutoregressiveDecoder, Decoder, SpeculativeDecoder
from draftbench.engine.drafter_model import DrafterModel
from draftbench.engine.interface import EngineSettings, GenerationRequest, RequestRefusedError, TokenEvent
from draftbench.engine.prefill import prefill, reusable_tokens
from draftbench.engine.proposers import BlockDrafter, ChainProposer, TreeProposer
from draftbench.engine.running import RunningRequest
from draftbench.engine.sampling import TokenSampler
from draftbench.engine.self_test import resolve_numerics
from draftbench.engine.slots import CacheShape, SlotPool
from draftbench.engine.target_model import TargetModel
from draftbench.errors import ModelError


class Engine:
    """Continuous batching over one target and, for DFLASH and DDTREE, one drafter.

    Not thread-safe: one thread owns it.
    Raises ModelError at construction if a checkpoint is missing or the two do not match.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.target_config = _checked_target(settings)
        self.drafter_config = _checked_drafter(settings, self.target_config)
        self.numerics = resolve_numerics(settings.device, settings.dtype, settings.threads, self.target_config.shape)
        self._waiting: deque[GenerationRequest] = deque()
        self._running: list[RunningRequest] = []
        self._aborted: set[str] = set()
        self._submitted = 0
        self._load()

    def _load(self) -> None:
        settings, numerics, drafter_config = self.settings, self.numerics, self.drafter_config
        dtype, device = numerics.torch_dtype, torch.device(numerics.device)
        block = 0 if drafter_config is None else drafter_config.block_size
        capacity = settings.context_length + max(self.verify_width, block)
        features = () if drafter_config is None else drafter_config.feature_layers
        common = (capacity, dtype, device, numerics.packed)
        self._drafter: DrafterModel | None = None
        drafter_cache = None
        with torch.inference_mode():
            self._target = TargetModel(settings.target, self.target_config, *common, features, self._draft_vocabulary)
            if drafter_config is not None and settings.drafter is not None:
                self._drafter = DrafterModel(settings.drafter, drafter_config, *common)
                drafter_cache = CacheShape.of(drafter_config.shape, capacity)
        target_cache = CacheShape.of(self.target_config.shape, capacity)
        self._slots = SlotPool(
            settings.max_running_requests, target_cache, drafter_cache, dtype, device, settings.prefix_reuse
        )
        self._decoder = self._make_decoder()

    def _make_decoder(self) -> Decoder:
        if self._drafter is None:
            return AutoregressiveDecoder(self._target)
        blocks = BlockDrafter(self._target, self._drafter)
        if self.settings.method == "DFLASH":
            return SpeculativeDecoder(self._target, self._drafter, ChainProposer(blocks, self.draft_budget))
        tree = TreeProposer(blocks, self.draft_budget, self.settings.tree_top_k)
        return SpeculativeDecoder(self._target, self._drafter, tree)

    @property
    def draft_budget(self) -> int:
        """Draft nodes a verify step at most, the root not counted; 0 for AR."""
        if self.drafter_config is None:
            return 0
        return self.settings.draft_budget or self.drafter_config.block_size - 1

    @property
    def _draft_vocabulary(self) -> int | None:
        """Token ids that may be drafted; None without a drafter."""
        if self.drafter_config is None:
            return None
        whole = self.target_config.shape.vocabulary
        return min(self.settings.draft_vocabulary or whole, whole)

    @property
    def verify_width(self) -> int:
        """Rows a decode step and request at most."""
        return self.draft_budget + 1

    @property
    def running_count(self) -> int:
        """Requests that hold a slot now."""
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a slot."""
        return len(self._waiting)

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; raises RequestRefusedError if it cannot be served as asked."""
        _check_request(request, self.settings, self.target_config)
        if any(known.request_id == request.request_id for known in self._known()):
            raise RequestRefusedError(f"request id {request.request_id!r} is in use")
        self._waiting.append(request)

    def abort(self, request_id: str) -> None:
        """End a request at the next step with finish "abort"; unknown or finished ids are ignored."""
        if any(known.request_id == request_id for known in self._known()):
            self._aborted.add(request_id)

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._waiting or self._running)

    def flush_cache(self) -> bool:
        """Forget all kept prefixes; refused (False) while any request is running or waiting."""
        if self.has_work():
            return False
        self._slots.flush()
        return True

    def step(self) -> list[TokenEvent]:
        """Do one prefill or one decode step for all running requests; an idle engine returns no events."""
        with torch.inference_mode():
            return self._step()

    def _step(self) -> list[TokenEvent]:
        events = self._abort_marked()
        if self._waiting and len(self._running) < self.settings.max_running_requests:
            return [*events, self._prefill_next()]
        if self._running:
            advances = self._decoder.step(self._running)
            events += [running.advance(step) for running, step in zip(self._running, advances, strict=True)]
            self._release_finished(events)
        return events

    def _known(self) -> list[GenerationRequest]:
        return [*self._waiting, *(running.request for running in self._running)]

    def _prefill_next(self) -> TokenEvent:
        running = self._admit(self._waiting.popleft())
        self._running.append(running)
        event = running.advance(prefill(self._target, self._drafter, running))
        self._release_finished([event])
        return event

    def _admit(self, request: GenerationRequest) -> RunningRequest:
        scored_from = request.input_logprobs_start if request.return_input_logprobs else None
        slot = self._slots.acquire(request.input_ids, reusable_tokens(len(request.input_ids), scored_from))
        sampling = request.sampling
        seed = sampling.seed if sampling.seed is not None else hash((self.settings.seed, self._submitted)) & 0xFFFFFFFF
        self._submitted += 1
        stops = frozenset() if sampling.ignore_eos else sampling.stop_token_ids | self.target_config.eos_token_ids
        return RunningRequest(request, slot, TokenSampler(sampling, seed), stops, cached_tokens=slot.length)

    def _release_finished(self, events: list[TokenEvent]) -> None:
        finished = {event.request_id for event in events if event.finish is not None}
        for running in self._running:
            if running.request.request_id in finished:
                self._slots.release(running.slot)
        self._running = [running for running in self._running if running.request.request_id not in finished]

    def _abort_marked(self) -> list[TokenEvent]:
        """End what `abort` named, running or waiting."""
        if not self._aborted:
            return []
        events = [running.abort() for running in self._running if running.request.request_id in self._aborted]
        self._release_finished(events)
        gone = [request for request in self._waiting if request.request_id in self._aborted]
        events += [TokenEvent(request.request_id, (), "abort", None, 0, len(request.input_ids), 0) for request in gone]
        self._waiting = deque(request for request in self._waiting if request.request_id not in self._aborted)
        self._aborted.clear()
        return events

    def describe(self) -> dict[str, Any]:
        """The resolved settings, with the reason or rule beside each that was not set outright."""
        drafter = self.drafter_config
        return {
            "method": self.settings.method,
            "draft_budget": self.draft_budget or None,
            "verify_width": self.verify_width,
            "tree_top_k": self.settings.tree_top_k if self.settings.method == "DDTREE" else None,
            "draft_vocabulary": self._draft_vocabulary,
            "block_size": drafter.block_size if drafter else None,
            "block_size_rule": drafter.block_size_rule if drafter else None,
            "target_layer_ids": list(drafter.feature_layers) if drafter else None,
            "target_layer_ids_rule": drafter.feature_layers_rule if drafter else None,
            "sampling_scheme": "sample-and-match",
            "device": self.numerics.device,
            "dtype": self.numerics.dtype,
            "threads": self.numerics.threads,
            "packed_weights": self.numerics.packed,
            "numerics_reason": self.numerics.reason,
            "context_length": self.settings.context_length,
            "max_running_requests": self.settings.max_running_requests,
            "prefix_reuse": self.settings.prefix_reuse,
            "eos_token_ids": sorted(self.target_config.eos_token_ids),
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        }


def _checked_target(settings: EngineSettings) -> TargetConfig:
    if not settings.target.is_dir():
        raise ModelError(f"{settings.target}: no such target folder")
    config = read_target_config(settings.target)
    if settings.context_length > config.context_length:
        allowed = f"the target's {config.context_length} (config.json: max_position_embeddings)"
        raise ModelError(f"context_length {settings.context_length} exceeds {allowed}")
    return config


def _checked_drafter(settings: EngineSettings, target: TargetConfig) -> DrafterConfig | None:
    if settings.method == "AR" or settings.drafter is None:
        return None
    if not settings.drafter.is_dir():
        raise ModelError(f"{settings.drafter}: no such drafter folder")
    config = read_drafter_config(settings.drafter, target)
    longest = config.block_size - 1
    if settings.method == "DFLASH" and settings.draft_budget is not None and settings.draft_budget > longest:
        raise ModelError(f"draft budget {settings.draft_budget} exceeds the drafter's block of {longest} drafts")
    return config


def _check_request(request: GenerationRequest, settings: EngineSettings, target: TargetConfig) -> None:
    prompt, limit, wanted = len(request.input_ids), settings.context_length, request.sampling.max_new_tokens
    if prompt == 0:
        raise RequestRefusedError("the prompt is empty")
    if prompt >= limit:
        raise RequestRefusedError(
            f"The input ({prompt} tokens) is longer than the model's context length ({limit} tokens)."
        )
    if prompt + wanted > limit:
        total = f"{prompt} prompt tokens and {wanted} new ones"
        raise RequestRefusedError(f"{total} exceed the model's context length ({limit} tokens).")
    vocabulary = target.shape.vocabulary
    if not all(0 <= token < vocabulary for token in request.input_ids):
        raise RequestRefusedError(f"a prompt token id is outside the vocabulary (0 to {vocabulary - 1})")
    if request.return_top_logprobs and settings.method != "AR":
        raise RequestRefusedError(f"{settings.method} returns no output logprobs; only AR does")
    if request.return_input_logprobs and not 0 <= request.input_logprobs_start < prompt:
        raise RequestRefusedError(f"input_logprobs_start must be in 0 to {prompt - 1}")
