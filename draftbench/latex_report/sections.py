"""The report's sections in order; a section without content is not printed."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pylatex import NoEscape

from draftbench import sentences
from draftbench.figures import numbers
from draftbench.figures.declaration import Figure, Skipped
from draftbench.figures.latex_text import escape
from draftbench.figures.study import Study
from draftbench.latex_report import result_tables as tables
from draftbench.latex_report.blocks import figure_block, itemized, key_values, labelled, paragraph
from draftbench.report_content import plan_summary

PROSE = Path(__file__).resolve().parents[2] / "report"
_LEGEND = (
    "Triangles up mean faster, triangles down slower, circles not decided, dashes not tested. "
    "The interval beneath is the one that the verdict uses."
)


@dataclass(frozen=True)
class Material:
    """What the sections draw on."""

    study: Study
    figures: Sequence[Figure]
    skipped: Sequence[Skipped]
    reproduce: str

    def drawn(self, *stems: str) -> list[NoEscape]:
        """Figures whose names begin with any of the stems, and a line for each that is missing."""
        blocks = [figure_block(figure) for stem in stems for figure in self.figures if _is_of(figure, stem)]
        missing = [entry for stem in stems for entry in self.skipped if entry.name == stem]
        return blocks + [
            paragraph(f"Not drawn: {_lower_first(entry.title)}, since {entry.reason}.") for entry in missing
        ]


def _is_of(figure: Figure, stem: str) -> bool:
    """Whether a figure has this name, alone or with the suffix of a tensor parallelism."""
    return re.fullmatch(rf"{re.escape(stem)}(-tp\d+)?", figure.name) is not None


Section = tuple[str, Callable[[Material], list[NoEscape]]]


def _lower_first(text: str) -> str:
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _present(*blocks: NoEscape | None) -> list[NoEscape]:
    return [block for block in blocks if block is not None]


def conclusions(material: Material) -> list[NoEscape]:
    """What to run, how much faster, where not, how sure."""
    found = [labelled(entry.heading, entry.sentences) for entry in sentences.conclusions(material.study)]
    return found + _present(tables.recommendation_table(material.study))


def hypotheses(material: Material) -> list[NoEscape]:
    """Answers to the claims of the plan."""
    rows = material.study.table("hypotheses").to_dicts()
    return [
        labelled(
            str(row["id"]),
            [f"{str(row['statement']).rstrip('.')}. Answer: {row['answer'] or 'undecided'}. {row['evidence'] or ''}"],
        )
        for row in rows
    ]


def plan(material: Material) -> list[NoEscape]:
    """What was planned, and where the run left the plan."""
    study, content = material.study, material.study.plan
    if not content:
        return [paragraph("No plan.json was found beside the results, so what was planned cannot be stated.")]
    blocks = [paragraph(plan_summary(study))]
    refusals = [
        f"{entry.get('arm')} at TP{entry.get('tensor_parallelism')}: {entry.get('reason')}"
        for entry in content.get("refusals") or []
    ]
    if refusals:
        blocks.append(labelled("Refused before the run", refusals))
    if content.get("given_up"):
        blocks.append(labelled("Given up for the time budget", [str(entry) for entry in content["given_up"]]))
    blocks.append(deviations(study))
    if content.get("hardware"):
        blocks.append(key_values(content["hardware"], "Hardware of the plan."))
    blocks += _model_facts(content)
    if content.get("warnings"):
        blocks.append(labelled("Warnings of the plan", [str(entry) for entry in content["warnings"]]))
    return blocks


def _model_facts(content: Mapping[str, Any]) -> list[NoEscape]:
    """Facts of target and drafter with their sources."""
    blocks = []
    for role in ("target", "drafter"):
        model = content.get(role)
        if not isinstance(model, Mapping) or not isinstance(model.get("facts"), Mapping):
            continue
        facts = {name: _fact_words(fact) for name, fact in model["facts"].items()}
        blocks.append(key_values(facts, f"Facts of the {role}, {model.get('name')} ({model.get('origin')})."))
    return blocks


def _fact_words(fact: Any) -> str:
    if not isinstance(fact, Mapping):
        return str(fact)
    value = fact.get("value")
    source = f" ({fact['source']})" if fact.get("source") else ""
    shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
    return f"{numbers.NOT_AVAILABLE if value is None else shown}{source}"


def deviations(study: Study) -> NoEscape:
    """Every difference between plan and run."""
    if study.table("deviations").is_empty():
        known = "deviations" not in study.absent
        return paragraph("The run followed the plan: no deviation was recorded." if known else
                         "Deviations from the plan were not recorded.")  # fmt: skip
    return labelled("Deviations from the plan", sentences.deviations(study))


def method(material: Material) -> list[NoEscape]:
    """Definitions and formulas."""
    text = (PROSE / "method.tex").read_text(encoding="utf-8")
    return [NoEscape(text), paragraph(settings_sentence(material.study))]


def settings_sentence(study: Study) -> str:
    """The study's own margin and confidence."""
    return (
        f"In this study the margin is {numbers.percent(study.margin)} and the confidence is "
        f"{numbers.confidence_label(study.confidence)}."
    )


def speed(material: Material) -> list[NoEscape]:
    """Speed-up over AR and over the chain, tables and figures."""
    study = material.study
    return [
        *material.drawn("speedup-vs-ar"),
        *tables.speedup_tables(study, "AR", f"Speed-up over AR. {_LEGEND}"),
        *material.drawn("speedup-vs-dflash"),
        *tables.speedup_tables(
            study, "DFLASH", f"Speed-up of draft trees over DFlash with the same drafter. {_LEGEND}"
        ),
        *material.drawn("speedup-session-time"),
    ]


def lossless(material: Material) -> list[NoEscape]:
    """Sentences, figures and table on the output."""
    study = material.study
    return [
        itemized(sentences.losslessness(study)),
        *material.drawn("losslessness", "losslessness-margin"),
        *_present(tables.losslessness_table(study)),
    ]


def failures(material: Material) -> list[NoEscape]:
    """What failed, or the statement that nothing did."""
    table = tables.failure_table(material.study)
    if table is not None:
        return [table]
    known = "failures" not in material.study.absent
    return [paragraph("No launch, warm-up or cell failed." if known else "Failures were not recorded.")]


def threats(material: Material) -> list[NoEscape]:
    """What limits the conclusions."""
    return [NoEscape((PROSE / "threats.tex").read_text(encoding="utf-8")), *material.drawn("ar-over-time")]


def provenance(material: Material) -> list[NoEscape]:
    """How to make the report again, and from what it was made."""
    content = material.study.provenance
    lead = NoEscape(f"To make this report again from the recorded rows:\n\n{material.reproduce}\n\n")
    if not content:
        return [lead, paragraph("No provenance was collected from the cells.")]
    return [lead, key_values(content, "Versions, hardware, hashes and seed.")]


def appendix(material: Material) -> list[NoEscape]:
    """Every cell, levels and cross-checks."""
    study = material.study
    return _present(tables.cell_table(study), tables.crosscheck_table(study))


SECTIONS: tuple[Section, ...] = (
    ("Conclusions", conclusions),
    ("Hypotheses", hypotheses),
    ("Plan and deviations", plan),
    ("Method", method),
    ("Speed-up", speed),
    ("What the speed-up is made of", lambda material: material.drawn("decomposition")),
    ("Yield and speed-up against the draft budget",
     lambda material: material.drawn("yield-by-budget", "speedup-by-budget", "acceptance-by-position")),
    ("Latency and throughput",
     lambda material: [*material.drawn("ttft", "tpot", "throughput-by-concurrency"),
                       *_present(tables.level_table(material.study))]),
    ("Losslessness", lossless),
    ("Failures", failures),
    ("Threats to validity", threats),
    ("Provenance", provenance),
    ("Appendix: every cell", appendix),
)  # fmt: skip


def escaped_title(text: str) -> str:
    """A section's heading in LaTeX."""
    return escape(text)
