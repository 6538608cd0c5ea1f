"""Arms: ways of decoding that an experiment compares."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from draftbench.config.section import Section

Method = Literal["AR", "DFLASH", "DDTREE", "EAGLE3", "NEXTN", "NGRAM", "STANDALONE", "DSPARK", "OTHER"]

NEEDS_DRAFTER: frozenset[str] = frozenset({"DFLASH", "DDTREE", "EAGLE3", "STANDALONE", "DSPARK"})
"""Methods that load a checkpoint beside the target."""

ArmName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


@dataclass(frozen=True)
class Arm:
    """One way of decoding, fully set: a method with its parameters."""

    name: str
    method: Method
    draft_budget: int | None = None
    tree_top_k: int | None = None
    draft_tokens: int | None = None
    algorithm: str | None = None
    flags: dict[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def verify_width(self) -> int | None:
        """Tokens that one verify pass runs through the target; None where only the drafter's checkpoint knows."""
        if self.method == "AR":
            return 1
        if self.draft_budget is not None:
            return self.draft_budget + 1
        return self.draft_tokens

    @property
    def is_tree(self) -> bool:
        """Whether sibling drafts share a verify pass, which recurrent layers cannot keep apart."""
        return self.method == "DDTREE"


class ArmConfig(Section):
    """One entry of `arms`; a DDTree entry with several budgets stands for one arm a budget."""

    name: ArmName = Field(description="Name of the arm; with several budgets the stem, as in ddtree-b15.")
    method: Method = Field(description="How tokens are drafted and verified; OTHER passes `algorithm` through.")
    draft_budgets: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        default=(),
        description="DDTREE only: tree nodes verified per step, the root not counted (verify width = budget + 1).",
    )
    tree_top_k: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None,
        description="DDTREE only: candidates considered per depth; 8 changes nothing below budget 32.",
    )
    draft_tokens: Annotated[int, Field(ge=2, le=1024)] | None = Field(
        default=None,
        description="Chain methods: tokens per verify pass, the root counted; null = the drafter's block.",
    )
    algorithm: str | None = Field(
        default=None, description="OTHER only: the engine's own name of the speculative algorithm."
    )
    flags: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Further launch flags of this arm alone, by the engine's own names."
    )

    @model_validator(mode="after")
    def _parameters_fit_the_method(self) -> Self:
        if self.method == "DDTREE" and not self.draft_budgets:
            raise ValueError("a DDTREE arm needs draft_budgets, for example [7, 15, 31]")
        if self.method != "DDTREE" and (self.draft_budgets or self.tree_top_k):
            raise ValueError("draft_budgets and tree_top_k belong to DDTREE arms only")
        if (self.method == "OTHER") != (self.algorithm is not None):
            raise ValueError("algorithm belongs to OTHER arms, and they need it")
        if len(set(self.draft_budgets)) != len(self.draft_budgets):
            raise ValueError("draft_budgets names a budget twice")
        return self

    def expand(self) -> tuple[Arm, ...]:
        """The arms that this entry stands for, budgets in the order written."""
        if not self.draft_budgets:
            return (
                Arm(
                    self.name,
                    self.method,
                    draft_tokens=self.draft_tokens,
                    algorithm=self.algorithm,
                    flags=dict(self.flags),
                ),
            )
        return tuple(
            Arm(
                f"{self.name}-b{budget}",
                self.method,
                draft_budget=budget,
                tree_top_k=self.tree_top_k or 8,
                flags=dict(self.flags),
            )
            for budget in self.draft_budgets
        )
