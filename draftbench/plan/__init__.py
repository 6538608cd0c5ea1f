"""The plan: a pure function of config, inventory and model facts, made before anything runs."""

from draftbench.plan.budget import BudgetDecision, fit_budget
from draftbench.plan.content import Plan
from draftbench.plan.document import build_plan
from draftbench.plan.inputs import PlanInputs, read_inputs
from draftbench.plan.refusals import check_study, refuse

__all__ = [
    "BudgetDecision",
    "Plan",
    "PlanInputs",
    "build_plan",
    "check_study",
    "fit_budget",
    "read_inputs",
    "refuse",
]
