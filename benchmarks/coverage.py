"""How honest the intervals and verdicts are: simulated studies in which the truth is known.

`python benchmarks/coverage.py [--studies 2000]` writes benchmarks/coverage.csv.
Each study has AR, a chain and three trees on three workloads of six conversations; a launch shifts all workloads of its
session alike, a block's drift shifts all its arms, every arm has its own taste for every conversation.
False verdicts are counted at the worst place of the null, a true ratio exactly at the margin (here shifted to 1).
"""

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.statistics.multiplicity import holm_levels
from draftbench.statistics.random_effects import (
    Floats,
    LogEstimate,
    Spread,
    crossed_bootstrap,
    estimate_log_ratio,
    pooled_launch_variance,
)

ARMS, WORKLOADS, CONVERSATIONS = 5, 3, 6
PAIRS = [(arm, 0) for arm in range(1, ARMS)] + [(tree, 1) for tree in range(2, ARMS)]
"""Every arm against AR (0), every tree against the chain (1)."""
ALPHA, DRIFT, CELL_NOISE, REST_NOISE = 0.05, 0.02, 0.003, 0.005
WEIGHTS = np.full(CONVERSATIONS, 1 / CONVERSATIONS)
MARGIN, GAIN = 0.03, 0.06
"""Power: the chance of `faster` at a margin of 3 % for an arm that is truly 6 % faster."""


@dataclass(frozen=True)
class Scenario:
    """Blocks, and spreads of launches and of an arm's conversations (standard deviations of logs)."""

    blocks: int
    launch: float
    taste: float


@dataclass(frozen=True)
class Simulated:
    """A comparison's estimate, its error for all prompts and for these prompts, and its cells."""

    estimate: LogEstimate
    error: float
    error_these: float
    cells: Floats


def simulate(scenario: Scenario, random: np.random.Generator) -> list[Simulated]:
    """One study in which every true ratio is 1."""
    normal, blocks = random.standard_normal, scenario.blocks
    launches = scenario.launch * normal((1, ARMS, blocks, 1)) + DRIFT * normal((WORKLOADS, 1, blocks, 1))
    tastes = scenario.taste * normal((WORKLOADS, ARMS, 1, CONVERSATIONS))
    noise = CELL_NOISE * normal((WORKLOADS, ARMS, blocks, 1))
    logs = launches + tastes + noise + REST_NOISE * normal((WORKLOADS, ARMS, blocks, CONVERSATIONS))
    return [each for workload in range(WORKLOADS) for each in _compare(logs[workload], tastes[workload, :, 0])]


def _compare(logs: Floats, tastes: Floats) -> Iterator[Simulated]:
    means = logs.mean(axis=2)
    levels = {(str(arm), block): float(value) for (arm, block), value in np.ndenumerate(means)}
    launch = pooled_launch_variance(levels)
    for arm, baseline in PAIRS:
        cells = logs[baseline] - logs[arm]
        estimate = estimate_log_ratio(cells, WEIGHTS, launch)
        here = float((tastes[baseline] - tastes[arm]).mean())
        yield Simulated(estimate, estimate.mean, estimate.mean - here, cells)


def _p_values(errors: Floats, spreads: Sequence[Spread | None]) -> Floats:
    known = [spread for spread in spreads if spread is not None]
    own = _p_of(errors, known)
    narrower = [spread.at_least for spread in known if spread.at_least is not None]
    return np.maximum(own, _p_of(errors, narrower)) if narrower else own


def _p_of(errors: Floats, spreads: Sequence[Spread]) -> Floats:
    """`p_value` for many at once."""
    deviations = np.sqrt([spread.variance for spread in spreads])
    freedoms = np.array([spread.degrees_of_freedom for spread in spreads])
    p_values: Floats = np.minimum(1, 2 * stats.t.sf(np.abs(errors) / deviations, freedoms))
    return p_values


def _rejected(p_values: Floats) -> list[bool]:
    levels = holm_levels(p_values.tolist(), ALPHA)
    return [bool(p <= (level or 0)) for p, level in zip(p_values, levels, strict=True)]


def judge(family: list[Simulated], like_these: bool) -> dict[str, float]:
    """Shares of one study; coverage is that of the plain interval, the rest that of the family's."""
    estimates = [each.estimate for each in family]
    plain = [e.like_these if like_these else e.these_prompts for e in estimates]
    verdict = [e.like_these_in_family if like_these else e.these_prompts for e in estimates]
    errors = np.array([each.error if like_these else each.error_these for each in family])
    gains = errors + np.log1p(GAIN) - np.log1p(MARGIN)
    suffix = "" if like_these else "_these_prompts"
    return {
        f"false_familywise{suffix}": float(any(_rejected(_p_values(errors, verdict)))),
        f"coverage{suffix}": float((_p_values(errors, plain) > ALPHA).mean()),
        f"power{suffix}": float(np.mean(_rejected(_p_values(gains, verdict)))),
    }


def measure(scenario: Scenario, studies: int, seed: int) -> dict[str, Any]:
    """Shares over all studies: familywise false verdicts, coverage of the intervals and of a bootstrap, power."""
    random = np.random.default_rng([seed, scenario.blocks, int(1e6 * scenario.launch), int(1e6 * scenario.taste)])
    counts: dict[str, list[float]] = {}
    for study in range(studies):
        family = simulate(scenario, random)
        for like_these in (True, False):
            for name, share in judge(family, like_these).items():
                counts.setdefault(name, []).append(share)
        interval = crossed_bootstrap(family[0].cells, WEIGHTS, ALPHA, seed=study, replicates=400)
        assert interval is not None
        counts.setdefault("coverage_bootstrap", []).append(interval[0] <= 0 <= interval[1])
    return {name: round(float(np.mean(values)), 4) for name, values in counts.items()}


def main() -> None:
    """Runs the grid of the issue and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    began, rows = time.monotonic(), []
    for taste in (0.02, 0.10):
        for blocks in (2, 3, 5):
            for launch in (0.003, 0.006, 0.010):
                scenario = Scenario(blocks, launch, taste)
                row = {"blocks": blocks, "launch_spread": launch, "conversation_spread": taste}
                rows.append(
                    {**row, "studies": arguments.studies, **measure(scenario, arguments.studies, arguments.seed)}
                )
                print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{arguments.out}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
