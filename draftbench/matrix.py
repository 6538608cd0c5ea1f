"""The experiment matrix: sessions and cells, expanded from config and ledger alone."""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftbench.config import Arm, ExperimentConfig

MEASUREMENT_PROTOCOL = 1
"""Raised by hand when a change of code makes new numbers incomparable with old ones."""


@dataclass(frozen=True)
class Cell:
    """One measurement: a session's workload at one concurrency; one Snakemake job, one folder."""

    key: str
    session: str
    workload: str
    workload_key: str
    concurrency: int


@dataclass(frozen=True)
class Session:
    """The cells of one (arm, tensor parallelism, block), normally served by one launch."""

    key: str
    arm: Arm
    tensor_parallelism: int
    block: int
    order: int
    spec: Mapping[str, Any]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Refusal:
    """A wanted session or comparison that leaves the matrix before anything runs."""

    arm: str
    tensor_parallelism: int
    reason: str


@dataclass(frozen=True)
class Matrix:
    """Everything that will be measured, in running order, and what was refused."""

    sessions: tuple[Session, ...]
    refusals: tuple[Refusal, ...]
    blocks: Mapping[int, tuple[str, ...]]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells in running order."""
        return tuple(cell for session in self.sessions for cell in session.cells)

    def session(self, key: str) -> Session:
        """The session of this key."""
        return next(session for session in self.sessions if session.key == key)


def digest(content: Any, length: int) -> str:
    """First hex digits of the sha256 of canonical JSON, so that key order does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def assign_blocks(arms: Sequence[str], wanted: int, ledger: Mapping[int, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    """Block number -> arm names; AR (the first of `arms`) stands in every block.

    Arms keep the blocks they already had.
    An arm with fewer than `wanted` blocks comes in new blocks, each with its own AR, since ratios are taken within a
    block only and the old blocks' AR was measured at another time.
    """
    baseline, *others = arms
    held = {name: [number for number in sorted(ledger) if name in ledger[number]][:wanted] for name in others}
    first_new = max(ledger, default=0) + 1
    for name in others:
        held[name] += range(first_new, first_new + wanted - len(held[name]))
    numbers = sorted({number for mine in held.values() for number in mine})
    numbers += [number for number in range(1, wanted + 1) if number not in numbers][: wanted - len(numbers)]
    return {n: (baseline, *(name for name in others if n in held[name])) for n in sorted(numbers)}


def expand(
    config: ExperimentConfig,
    workload_keys: Mapping[str, str],
    session_spec: Callable[[Arm, int], Mapping[str, Any]],
    refuse: Callable[[Arm, int], str | None],
    ledger: Mapping[int, Sequence[str]],
) -> Matrix:
    """Sessions in running order: block after block, inside a block in an order drawn from the seed.

    `workload_keys` maps a workload's name to `<name>-<hash6>`, the hash covering everything that decides its bytes.
    `session_spec` gives what the session hash covers; `refuse` the reason why an arm cannot run at a tp, or None.
    """
    by_name = {arm.name: arm for arm in config.expanded_arms}
    refusals = tuple(
        Refusal(arm.name, tp, reason)
        for tp in config.tensor_parallelism
        for arm in by_name.values()
        if (reason := refuse(arm, tp)) is not None
    )
    refused = {(refusal.arm, refusal.tensor_parallelism) for refusal in refusals}
    blocks = assign_blocks(list(by_name), config.blocks, ledger)
    sessions: list[Session] = []
    for block, names in blocks.items():
        pairs = [(name, tp) for tp in config.tensor_parallelism for name in names if (name, tp) not in refused]
        random.Random(f"{config.seed}:{block}").shuffle(pairs)
        for name, tp in pairs:
            spec = session_spec(by_name[name], tp)
            sessions.append(_session(config, workload_keys, by_name[name], tp, block, len(sessions), spec))
    return Matrix(tuple(sessions), refusals, blocks)


def _session(
    config: ExperimentConfig,
    workload_keys: Mapping[str, str],
    arm: Arm,
    tp: int,
    block: int,
    order: int,
    spec: Mapping[str, Any],
) -> Session:
    key = f"{arm.name}_tp{tp}_block{block}-{digest({**spec, 'protocol': MEASUREMENT_PROTOCOL}, 8)}"
    cells = [
        Cell(
            key=f"{name}_c{concurrency}-{digest([workload_keys[name], concurrency, config.sampling.model_dump()], 6)}",
            session=key,
            workload=name,
            workload_key=workload_keys[name],
            concurrency=concurrency,
        )
        for name, workload in config.workloads.items()
        for concurrency in workload.concurrency
    ]
    random.Random(f"{config.seed}:{block}:{arm.name}:{tp}").shuffle(cells)
    return Session(key, arm, tp, block, order, spec, tuple(cells))
