"""Whole builds: the same bytes twice, and files that agree with each other."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError

from draftbench.errors import WorkloadError
from draftbench.workloads.build import build_workload
from draftbench.workloads.definitions import SOURCE_SETS, WorkloadDefinition, definition_digest
from draftbench.workloads.schema import Manifest, load_manifest, load_references, load_rendered
from draftbench.workloads.templates import load_target_template, template_digest

REPOSITORY = Path(__file__).parents[3]
Built = Callable[[str], tuple[Path, Manifest]]
LIMITS = {
    "agentic-bfcl": {"tools": "called", "max_turns": 4, "max_prompt_tokens": 8000},
    "code-humaneval": {},
    "json-schemastore": {"max_prompt_tokens": 4000},
}


def definition(set_name: str, **changes: object) -> WorkloadDefinition:
    """Three items of a set under byte tokens."""
    settings = {"set": set_name, "ranks": (0, 3), "max_new_tokens": 64, "max_context": 32768}
    return WorkloadDefinition.model_validate(settings | LIMITS[set_name] | changes)


def definition_file(folder: Path, wanted: WorkloadDefinition) -> Path:
    """Write a definition as the script reads it."""
    path = folder / "definition.json"
    path.write_text(wanted.model_dump_json())
    return path


def hashes(folder: Path) -> dict[str, str]:
    """sha256 of each file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def built(target_dir: Path, wheel_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build a set once for all tests of this module."""

    @cache
    def build(set_name: str) -> tuple[Path, Manifest]:
        folder = tmp_path_factory.mktemp(set_name)
        return folder, build_workload(definition(set_name), target_dir, folder, wheel_cache)

    return build


@pytest.mark.parametrize("set_name", list(LIMITS))
def test_building_twice_gives_the_same_bytes(
    set_name: str, built: Built, target_dir: Path, tmp_path: Path, wheel_cache: Path
) -> None:
    """Also in another process under another hash seed and time zone, with simulator results computed anew."""
    fresh_cache = tmp_path / "cache"
    fresh_cache.mkdir()
    (fresh_cache / "wheels").symlink_to(wheel_cache / "wheels")
    command = [sys.executable, "workflow_scripts/workloads.py", "--target-dir", str(target_dir)]
    command += ["--definition", str(definition_file(tmp_path, definition(set_name)))]
    command += ["--out-dir", str(tmp_path / "second"), "--cache-dir", str(fresh_cache)]
    subprocess.run(
        command, cwd=REPOSITORY, env={"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}, check=True, capture_output=True
    )
    first = hashes(built(set_name)[0])
    assert hashes(tmp_path / "second") == first
    assert len(first) == 4


@pytest.mark.parametrize("set_name", list(LIMITS))
def test_files_agree(set_name: str, built: Built, target_dir: Path) -> None:
    """Rendered ids are the requests under the template; references belong to requests; the manifest vouches."""
    folder, manifest = built(set_name)
    assert load_manifest(folder / "manifest.json") == manifest
    found = hashes(folder)
    del found["manifest.json"]
    assert manifest.files == found
    requests = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    conversations = load_rendered(folder / "rendered.jsonl")
    turns = [(conversation.session_id, turn) for conversation in conversations for turn in conversation.turns]
    template = load_target_template(target_dir)
    assert [(request["session_id"], request["meta"]["turn"]) for request in requests] == [
        (session, turn.turn) for session, turn in turns
    ]
    for request, (_, turn) in zip(requests, turns, strict=True):
        text = template.render(tuple(request["messages"]), tuple(request.get("tools", ())))
        assert template.tokenizer.decode(list(turn.input_ids), skip_special_tokens=False) == text
        assert turn.max_new_tokens == request["output_length"] == 64
    checked = {(request["session_id"], request["meta"]["turn"]) for request in requests if "check" in request["meta"]}
    assert set(load_references(folder / "references.jsonl")) == checked
    assert manifest.selected.requests == len(requests)
    assert [item.item_id for item in manifest.selection] == [conversation.item_id for conversation in conversations]


def test_prompts_never_contain_the_answer(built: Built) -> None:
    """The reference call of a BFCL request is in no message of that request."""
    folder, _ = built("agentic-bfcl")
    references = load_references(folder / "references.jsonl")
    for line in (folder / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        reference = references.get((request["session_id"], request["meta"]["turn"]))
        if reference is not None:
            assert request["messages"][-1]["role"] == "user"
            assert reference.text not in request["messages"][-1]["content"]


def test_target_with_tools_gets_them_natively(tool_target_dir: Path, tmp_path: Path, wheel_cache: Path) -> None:
    """Requests carry OpenAI tools and calls, and the factor says so."""
    manifest = build_workload(definition("agentic-bfcl"), tool_target_dir, tmp_path, wheel_cache)
    assert manifest.tool_format == "native"
    requests = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert all(request["tools"][0]["type"] == "function" for request in requests)
    assert {message["role"] for message in requests[1]["messages"]} == {"user", "assistant", "tool"}


def test_thinking_cannot_be_asked_of_a_template_without_it(target_dir: Path, tmp_path: Path, wheel_cache: Path) -> None:
    """An "on" that would have no effect is refused."""
    with pytest.raises(WorkloadError, match="thinking is 'on', but the chat template in"):
        build_workload(definition("code-humaneval", thinking="on"), target_dir, tmp_path, wheel_cache)


def test_digest_covers_what_decides_the_bytes(target_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field of the definition, the template, the user's file and the converter version change it."""
    base = definition("code-humaneval")
    template = template_digest(target_dir)
    changes: list[dict[str, object]] = [
        {"ranks": (0, 4)},
        {"ranks": (1, 3)},
        {"max_new_tokens": 65},
        {"max_turns": 1},
        {"min_turns": 2},
        {"max_prompt_tokens": 9},
        {"max_context": 9},
        {"seed": 1},
        {"thinking": "off"},
        {"tools": "called"},
        {"set": "json-schemastore"},
    ]
    changed = [definition_digest(base.model_copy(update=change), template) for change in changes]
    changed.append(definition_digest(base, "0" * 64))
    changed.append(definition_digest(base, template, "1" * 64))
    monkeypatch.setattr("draftbench.workloads.definitions.CONVERTER_VERSION", 999)
    changed.append(definition_digest(base, template))
    monkeypatch.undo()
    assert len({*changed, definition_digest(base, template)}) == len(changed) + 1
    assert definition_digest(definition("code-humaneval"), template) == definition_digest(base, template)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"set": "agentic-bfc"}, "set 'agentic-bfc' does not exist; there are agentic-bfcl, agentic-bfcl-long"),
        ({"ranks": (3, 3)}, r"ranks \[3, 3\] select no item"),
        ({"ranks": (-1, 3)}, r"ranks \[-1, 3\] select no item"),
        ({"path": "x.jsonl"}, "path belongs to set 'own'"),
        ({"set": "own"}, "path belongs to set 'own'"),
        ({"max_turns": 2, "min_turns": 3}, "min_turns 3 exceeds max_turns 2"),
        ({"max_new_tokens": 0}, "greater than 0"),
        ({"max_token": 5}, "Extra inputs"),
    ],
)
def test_mistakes_in_a_definition(change: dict[str, object], message: str) -> None:
    """Each is refused with what is allowed."""
    with pytest.raises(ValidationError, match=message):
        definition("code-humaneval", **change)


def test_every_set_says_where_it_is_from() -> None:
    """All but the user's own have a pinned package with a licence."""
    for source in SOURCE_SETS.values():
        assert source.name == "own" or (source.package.count("==") == 1 and source.licence)


def test_script_reports_a_mistake_on_one_line(target_dir: Path, tmp_path: Path, wheel_cache: Path) -> None:
    """No traceback, exit code 1."""
    command = [sys.executable, "workflow_scripts/workloads.py", "--target-dir", str(target_dir)]
    command += ["--definition", str(definition_file(tmp_path, definition("code-humaneval", ranks=(0, 165))))]
    command += ["--out-dir", str(tmp_path / "out"), "--cache-dir", str(wheel_cache)]
    finished = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert finished.returncode == 1
    assert finished.stderr.splitlines() == [
        "draftbench: workload code-humaneval: ranks 0 to 165 asked for, 164 items fit; lower ranks or raise the limits"
    ]
    assert not (tmp_path / "out").exists()
