"""Display names, units, colours and order of arms and workloads: the only such table."""

import re

AR_COLOUR = "#4d4d4d"
CHAIN_COLOUR = "#0072b2"
TREE_COLOURS = ("#f0c05a", "#e69f00", "#d55e00", "#b2431b", "#8c2d04", "#5c1a00")
OTHER_COLOURS = ("#009e73", "#cc79a7", "#56b4e9", "#999933")
"""Okabe-Ito hues; trees share one hue that darkens with the budget, so that grey print keeps the order."""

METHOD_LABELS = {
    "AR": "AR",
    "DFLASH": "DFlash",
    "DDTREE": "DDTree",
    "EAGLE3": "EAGLE-3",
    "NEXTN": "MTP",
    "NGRAM": "N-gram",
    "STANDALONE": "Standalone",
    "DSPARK": "DSpark",
}
METHOD_ORDER = ("AR", "DFLASH", "DDTREE", "EAGLE3", "NEXTN", "NGRAM", "STANDALONE", "DSPARK", "OTHER")


def arm_label(name: str, method: str, draft_budget: int | None) -> str:
    """`DDTree 15` for a tree of 15 nodes, else the method, with the arm's own name where that says more."""
    label = METHOD_LABELS.get(method, name)
    if draft_budget is not None:
        label = f"{label} {draft_budget}"
    stem = re.sub(r"-b\d+$", "", name).replace("-", "")
    return label if stem.upper() == method.replace("-", "") else f"{label} ({name})"


def arm_order(method: str, draft_budget: int | None) -> tuple[int, int]:
    """Sort key of arms everywhere: AR, chains, trees by budget, others."""
    return (METHOD_ORDER.index(method) if method in METHOD_ORDER else len(METHOD_ORDER), draft_budget or 0)


def arm_colours(arms: list[tuple[str, str, int | None]]) -> dict[str, str]:
    """Colour by arm name for (name, method, draft budget) triples, the same in every figure."""
    trees = sorted({budget or 0 for _, method, budget in arms if method == "DDTREE"})
    others = [name for name, method, _ in arms if method not in {"AR", "DFLASH", "DDTREE"}]
    return {name: _colour(name, method, budget, trees, others) for name, method, budget in arms}


def _colour(name: str, method: str, budget: int | None, trees: list[int], others: list[str]) -> str:
    if method == "AR":
        return AR_COLOUR
    if method == "DFLASH":
        return CHAIN_COLOUR
    if method == "DDTREE":
        place = trees.index(budget or 0)
        return (
            TREE_COLOURS[round(place * (len(TREE_COLOURS) - 1) / max(1, len(trees) - 1))]
            if len(trees) > 1
            else TREE_COLOURS[2]
        )
    return OTHER_COLOURS[others.index(name) % len(OTHER_COLOURS)]


def workload_label(name: str) -> str:
    """`JSON` and friends as people write them."""
    return {"json": "JSON", "agentic": "Agentic", "code": "Code", "math": "Math", "chat": "Chat"}.get(name, name)
