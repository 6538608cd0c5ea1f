"""How narrow the intervals will be, and how many blocks a wanted margin needs, from stated spreads.

The log ratio of two arms averages over blocks (launches) and over conversations, which are crossed (design decision
10). Its variance is 2 x launch_sd^2 / blocks, plus conversation_sd^2 / conversations where the claim is about prompts
like these; for exactly these prompts the second term is absent. Degrees of freedom by Satterthwaite.
"""

import math
from dataclasses import dataclass

LAUNCH_SD = 0.006
"""Spread of log speed between launches of one arm."""

CONVERSATION_SD = 0.15
"""Spread of the log ratio of two arms between conversations."""

MOST_BLOCKS = 100


@dataclass(frozen=True)
class Power:
    """Expected half-widths, as relative differences, of a comparison; None where no interval is possible.

    `blocks_needed` is the least number of blocks at which the half-width for these prompts is within the margin.
    """

    conversations: int
    for_these_prompts: float | None
    for_prompts_like_these: float | None
    blocks_needed: int | None


def power_of(conversations: int, blocks: int, arms: int, margin: float, level: float) -> Power:
    """Expected precision of a comparison at this confidence level.

    `arms` counts every arm of one tp, AR included.
    """

    def width(blocks: int, sampled_prompts: bool) -> float | None:
        return half_width(blocks, arms, conversations if sampled_prompts else None, level)

    reached = ((n, width(n, sampled_prompts=False)) for n in range(2, MOST_BLOCKS + 1))
    needed = next((n for n, half in reached if half is not None and half <= margin), None)
    return Power(conversations, width(blocks, sampled_prompts=False), width(blocks, sampled_prompts=True), needed)


def familywise_level(confidence: float, family: int) -> float:
    """Confidence of one interval among `family` ones: the first, widest step of Holm's procedure."""
    return 1 - (1 - confidence) / max(1, family)


def half_width(
    blocks: int,
    arms: int,
    conversations: int | None,
    level: float,
    launch_sd: float = LAUNCH_SD,
    conversation_sd: float = CONVERSATION_SD,
) -> float | None:
    """Return the relative half-width exp(t x sd) - 1; None where one block or one conversation leaves no spread.

    `conversations` None = the claim is about exactly these prompts.
    Launch variance is pooled over the arms of one tp: (arms - 1) x (blocks - 1) degrees of freedom.
    """
    if blocks < 2 or (conversations is not None and conversations < 2):
        return None
    parts = [(2 * launch_sd**2 / blocks, (arms - 1) * (blocks - 1))]
    if conversations is not None:
        parts.append((conversation_sd**2 / conversations, conversations - 1))
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return math.expm1(t_quantile(0.5 + level / 2, freedom) * math.sqrt(variance))


def t_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t; scipy is imported here because it is slow to load and rules load this module."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
