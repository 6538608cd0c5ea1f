"""Where two outputs first differ, and how sure the target was there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

UNIT = ["conversation", "turn"]


@dataclass(frozen=True)
class Outputs:
    """A cell's outputs: conversation, turn, request, output_ids, tokens and the repetition mark, one row a request."""

    frame: pl.DataFrame

    @property
    def requests(self) -> int:
        """Requests of the cell."""
        return self.frame.height


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first output position that differs, a missing token counting as different; None for equal outputs."""
    common = min(len(ours), len(theirs))
    one, other = np.asarray(ours[:common]), np.asarray(theirs[:common])
    different = np.flatnonzero(one != other)
    if len(different):
        return int(different[0])
    return None if len(ours) == len(theirs) else common


def compare_outputs(arm: Outputs, baseline: Outputs) -> pl.DataFrame:
    """One row a request that both cells hold: unit, position (null: equal), tokens of both, marks, AR's request."""
    joined = arm.frame.join(baseline.frame, on=UNIT, how="inner", suffix="_ar")
    pairs = zip(joined["output_ids"], joined["output_ids_ar"], strict=True)
    positions = [first_difference(ours.to_numpy(), theirs.to_numpy()) for ours, theirs in pairs]
    return joined.drop("output_ids", "output_ids_ar").with_columns(position=pl.Series(positions, dtype=pl.Int64))


def with_margins(compared: pl.DataFrame, scores: pl.DataFrame | None) -> pl.DataFrame:
    """Adds the target's margin at each first difference.

    Up to that position both outputs have the same prefix, so AR's own scored output gives it.
    Null where nothing differs, or where AR has no score at that position.
    """
    if scores is None:
        return compared.with_columns(margin=pl.lit(None, dtype=pl.Float64))
    margins = scores.select(
        request_ar=pl.col("request"),
        position=pl.col("position").cast(pl.Int64),
        margin=pl.col("top1_logprob") - pl.col("top2_logprob"),
    )
    return compared.join(margins, on=["request_ar", "position"], how="left")
