"""Choosing one token from one row of the target's logits."""

import numpy as np
import numpy.typing as npt
import torch

from draftbench.engine.interface import SamplingSettings


def filtered_probabilities(logits: torch.Tensor, settings: SamplingSettings) -> npt.NDArray[np.float64]:
    """The distribution that `settings` define over the vocabulary; `logits` is one row, temperature is above 0.

    Order as in SGLang: temperature, softmax, top-k, top-p on the unfiltered cumulative sum, renormalisation.
    """
    scaled: npt.NDArray[np.float64] = logits.detach().to("cpu", torch.float64).numpy() / settings.temperature
    weights: npt.NDArray[np.float64] = np.exp(scaled - scaled.max())
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    if settings.top_k == -1 and settings.top_p == 1.0:
        return probabilities
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    dropped = np.cumsum(ranked) - ranked > settings.top_p
    if settings.top_k != -1:
        dropped[settings.top_k :] = True
    probabilities[order[dropped]] = 0.0
    probabilities /= probabilities.sum()
    return probabilities


class TokenSampler:
    """Draws one uniform number a token, so that the n-th token of a request depends on its seed and logits alone.

    AR, DFlash and DDTree therefore give the same tokens for the same seed wherever their logits agree.
    """

    def __init__(self, settings: SamplingSettings, seed: int) -> None:
        self.settings = settings
        self._random = np.random.default_rng(seed)

    @property
    def greedy(self) -> bool:
        """Whether the choice is the argmax."""
        return self.settings.temperature == 0.0

    def choose(self, logits: torch.Tensor) -> int:
        """The token for one row of logits [vocabulary]."""
        if self.greedy:
            return int(logits.max(-1).indices)
        cumulative = np.cumsum(filtered_probabilities(logits, self.settings))
        drawn = self._random.random() * cumulative[-1]
        return int(min(np.searchsorted(cumulative, drawn, side="right"), len(cumulative) - 1))
