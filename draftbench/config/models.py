"""Models: where target and drafter lie, and declared facts where they cannot be read."""

from typing import Self

from pydantic import Field, model_validator

from draftbench.config.section import Section


class DeclaredFact(Section):
    """A number somebody looked up; unknown is null with the reason."""

    value: int | float | bool | str | tuple[int, ...] | None = Field(description="The fact; null = unknown.")
    source: str = Field(min_length=1, description="Where it was read, or why it is unknown.")


class ModelConfig(Section):
    """A checkpoint folder in Hugging Face layout."""

    name: str = Field(min_length=1, description="The model's name in plan and report.")
    path: str = Field(
        min_length=1, description="Folder with config.json and safetensors; relative to the project folder."
    )
    facts: dict[str, DeclaredFact] | None = Field(
        default=None,
        description="Sizes by name, each with its source, for planning on a machine that lacks the checkpoint.",
    )

    @model_validator(mode="after")
    def _facts_are_known_names(self) -> Self:
        unknown = set(self.facts or {}) - FACT_NAMES
        if unknown:
            raise ValueError(f"unknown fact {min(unknown)!r}; known: {', '.join(sorted(FACT_NAMES))}")
        return self


FACT_NAMES = frozenset(
    {
        "layers",
        "attention_layers",
        "recurrent_layers",
        "hidden_size",
        "query_heads",
        "kv_heads",
        "head_dim",
        "vocabulary",
        "parameters",
        "weight_bytes",
        "bytes_per_parameter",
        "kv_bytes_per_token",
        "recurrent_state_bytes",
        "context_length",
        "block_size",
        "mask_token_id",
        "feature_layers",
    }
)
"""Names that `draftbench.models.ModelFacts` reads from a checkpoint's config.json."""
