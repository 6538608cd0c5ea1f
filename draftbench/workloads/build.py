"""Builds one workload: source package, target folder and definition in, four files out."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from draftbench.errors import WorkloadError
from draftbench.workloads import schema
from draftbench.workloads.definitions import (
    CONVERTER_VERSION,
    OWN_SET,
    SOURCE_SETS,
    WorkloadDefinition,
    definition_digest,
)
from draftbench.workloads.items import SourceItem
from draftbench.workloads.lengths import length_table
from draftbench.workloads.schema import Manifest, PackageRecord, ToolFormat
from draftbench.workloads.selection import (
    FittingItems,
    RenderedItem,
    Renderer,
    fitting_items,
    select,
    selection_table,
)
from draftbench.workloads.sources.agent_sessions import agent_session_items
from draftbench.workloads.sources.bfcl import LONG_CONTEXT, multi_turn_items
from draftbench.workloads.sources.bfcl_single import single_turn_items
from draftbench.workloads.sources.gsm8k import gsm8k_items
from draftbench.workloads.sources.humaneval import humaneval_items
from draftbench.workloads.sources.mtbench import mtbench_items
from draftbench.workloads.sources.own_file import own_file_items
from draftbench.workloads.sources.schemastore import schemastore_items
from draftbench.workloads.storage import write_atomically
from draftbench.workloads.templates import (
    PINNED_NOW,
    TargetTemplate,
    load_target_template,
    probe_tool_format,
    template_digest,
)

LOADERS: dict[str, Callable[[Path], list[SourceItem]]] = {
    "agentic-bfcl": multi_turn_items,
    "agentic-bfcl-long": partial(multi_turn_items, category=LONG_CONTEXT),
    "agentic-swe": agent_session_items,
    "code-humaneval": humaneval_items,
    "json-schemastore": schemastore_items,
    "json-bfcl": single_turn_items,
    "math-gsm8k": gsm8k_items,
    "chat-mtbench": mtbench_items,
}
"""How each set is read from its package, given the cache folder."""


def build_workload(definition: WorkloadDefinition, target_dir: Path, out_dir: Path, cache_dir: Path) -> Manifest:
    """Write requests, references, rendered ids and manifest into `out_dir`; the same inputs give the same bytes.

    `cache_dir` keeps wheels and simulator results for other builds.
    Raises WorkloadError where the source cannot be had, the sample is larger than what fits, or the template
    cannot do what the definition asks.
    """
    template = load_target_template(target_dir)
    _check_thinking(definition, template, target_dir)
    items = load_items(definition, cache_dir)
    tool_format = _tool_format(items, template)
    renderer = Renderer(template, tool_format, definition)
    fitting = fitting_items(items, renderer.render)
    selected = select(fitting, definition)
    files = _files(renderer, selected)
    manifest = _manifest(definition, template, template_digest(target_dir), tool_format, fitting, selected, files)
    files[schema.MANIFEST_FILE] = manifest.model_dump_json(indent=1).encode() + b"\n"
    _write(out_dir, files)
    return manifest


def load_items(definition: WorkloadDefinition, cache_dir: Path) -> list[SourceItem]:
    """Return all items of the definition's set, before any limit."""
    if definition.path is not None:
        return own_file_items(Path(definition.path))
    return LOADERS[definition.set](cache_dir)


def _check_thinking(definition: WorkloadDefinition, template: TargetTemplate, target_dir: Path) -> None:
    if definition.thinking == "on" and not template.has_thinking_switch:
        raise WorkloadError(
            f"workload {definition.set}: thinking is 'on', but the chat template in {target_dir} has no "
            "enable_thinking; use 'default'"
        )


def _tool_format(items: list[SourceItem], template: TargetTemplate) -> ToolFormat:
    if not any(item.tools for item in items):
        return "none"
    return probe_tool_format(template)


def _files(renderer: Renderer, selected: list[RenderedItem]) -> dict[str, bytes]:
    definition = renderer.definition
    requests: list[schema.TraceRequest] = []
    rendered: list[schema.RenderedRequest] = []
    references: list[schema.Reference] = []
    for item in selected:
        requests += _trace_requests(definition, item)
        rendered += _rendered_requests(definition, item, renderer.input_ids(item))
        references += _references(definition, item)
    return {
        schema.REQUESTS_FILE: schema.to_jsonl(requests),
        schema.RENDERED_FILE: schema.to_jsonl(rendered),
        schema.REFERENCES_FILE: schema.to_jsonl(references),
    }


def _session_id(definition: WorkloadDefinition, item: RenderedItem) -> str:
    return f"{definition.set}/{item.item_id}"


def _trace_requests(definition: WorkloadDefinition, item: RenderedItem) -> list[schema.TraceRequest]:
    return [
        schema.TraceRequest(
            session_id=_session_id(definition, item),
            messages=list(turn.messages),
            tools=list(item.tools) or None,
            output_length=turn.max_new_tokens,
            delay=turn.delay_ms,
            meta=schema.RequestMeta(
                workload=definition.set,
                item_id=item.item_id,
                turn=number,
                check=turn.expectation.check if turn.expectation else None,
            ),
        )
        for number, turn in enumerate(item.turns)
    ]


def _rendered_requests(
    definition: WorkloadDefinition, item: RenderedItem, prompts: list[list[int]]
) -> list[schema.RenderedRequest]:
    return [
        schema.RenderedRequest(
            session_id=_session_id(definition, item),
            turn=number,
            input_ids=input_ids,
            max_new_tokens=turn.max_new_tokens,
            delay_ms=turn.delay_ms,
            item_id=item.item_id,
        )
        for number, (turn, input_ids) in enumerate(zip(item.turns, prompts, strict=True))
    ]


def _references(definition: WorkloadDefinition, item: RenderedItem) -> list[schema.Reference]:
    return [
        schema.Reference(
            session_id=_session_id(definition, item),
            turn=number,
            item_id=item.item_id,
            check=turn.expectation.check,
            expected=turn.expectation.expected,
            text=turn.expectation.text,
        )
        for number, turn in enumerate(item.turns)
        if turn.expectation is not None
    ]


def _manifest(
    definition: WorkloadDefinition,
    template: TargetTemplate,
    template_sha256: str,
    tool_format: ToolFormat,
    fitting: FittingItems,
    selected: list[RenderedItem],
    files: dict[str, bytes],
) -> Manifest:
    source_sha256 = _own_file_sha256(definition)
    return Manifest(
        set=definition.set,
        digest=definition_digest(definition, template_sha256, source_sha256),
        converter_version=CONVERTER_VERSION,
        definition=definition,
        packages=_package_records(definition.set),
        source_sha256=source_sha256,
        seed=definition.seed,
        tool_format=tool_format,
        thinking=definition.thinking if template.has_thinking_switch else "none",
        template_sha256=template_sha256,
        notes=_notes(template),
        selection=selection_table(selected, definition.ranks[0]),
        dropped=fitting.dropped,
        selected=length_table(selected, template),
        fitting=length_table(fitting.items, template),
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    )


def _package_records(set_name: str) -> tuple[PackageRecord, ...]:
    return tuple(
        PackageRecord(name=package.name, version=package.version, sha256=package.sha256, licence=package.licence)
        for package in SOURCE_SETS[set_name].packages
    )


def _notes(template: TargetTemplate) -> tuple[str, ...]:
    if "strftime_now" in template.source:
        return (f"The chat template prints today's date; it was given {PINNED_NOW:%Y-%m-%d}.",)
    return ()


def _own_file_sha256(definition: WorkloadDefinition) -> str | None:
    if definition.set != OWN_SET or definition.path is None:
        return None
    return hashlib.sha256(Path(definition.path).read_bytes()).hexdigest()


def _write(out_dir: Path, files: dict[str, bytes]) -> None:
    """Write the files; the manifest comes last and vouches for the others."""
    for name, content in files.items():
        write_atomically(out_dir / name, content)
