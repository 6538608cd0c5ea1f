"""The base of every config section."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen and strict about unknown keys, so that a misspelt key never measures something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
