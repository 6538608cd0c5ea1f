"""Is the output still the model's own? First differences from AR, judged by how sure the target was (decision 11)."""

from draftbench.losslessness.table import losslessness

__all__ = ["losslessness"]
