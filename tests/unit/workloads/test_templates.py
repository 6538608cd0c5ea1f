"""Chat templates rendered as transformers does."""

import json
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest

from draftbench.errors import WorkloadError
from draftbench.workloads.templates import (
    TargetTemplate,
    load_target_template,
    probe_tool_format,
    template_digest,
)

QUESTION = ({"role": "user", "content": "Why <b>?"},)


@pytest.fixture
def with_source(target_dir: Path) -> Callable[[str], TargetTemplate]:
    """Make a template of a given source."""
    loaded = load_target_template(target_dir)
    return lambda source: TargetTemplate(source, loaded.special_tokens, loaded.tokenizer)


def test_smollm2_prompt(target_dir: Path) -> None:
    """The template's own default system message, the question, and the opening of the reply."""
    assert load_target_template(target_dir).render(QUESTION) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhy <b>?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_token_ids_decode_to_the_prompt(target_dir: Path) -> None:
    """Ids are those of the whole prompt, special tokens as one id each."""
    template = load_target_template(target_dir)
    text = template.render(QUESTION)
    (ids,) = template.token_ids([text])
    assert template.tokenizer.decode(ids, skip_special_tokens=False) == text
    assert ids[0] == template.tokenizer.token_to_id("<|im_start|>")


def test_blocks_leave_no_whitespace(with_source: Callable[[str], TargetTemplate]) -> None:
    """trim_blocks and lstrip_blocks, as transformers sets them."""
    source = "{% for m in messages %}\n    {% if true %}\nx\n    {% endif %}\n{% endfor %}\n"
    assert with_source(source).render(QUESTION) == "x\n"


def test_tojson_is_plain_json(with_source: Callable[[str], TargetTemplate]) -> None:
    """No HTML escapes, no ASCII escapes, keys in order."""
    template = with_source("{{ {'b': '<é>', 'a': 1} | tojson }}")
    assert template.render(QUESTION) == '{"b": "<é>", "a": 1}'


def test_loop_controls_and_generation_marks(with_source: Callable[[str], TargetTemplate]) -> None:
    """{% break %} works; {% generation %} leaves its body."""
    source = "{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}"
    assert with_source(source + "{% generation %}g{% endgeneration %}").render(QUESTION) == "1g"


def test_dates_are_pinned(with_source: Callable[[str], TargetTemplate]) -> None:
    """A template that prints today's date prints the same date every day."""
    assert with_source("{{ strftime_now('%d %b %Y') }}").render(QUESTION) == "01 Jan 2026"


def test_special_tokens_are_given(with_source: Callable[[str], TargetTemplate]) -> None:
    """Both forms of tokenizer_config.json, text and object, reach the template."""
    assert with_source("{{ bos_token }}{{ eos_token }}").render(QUESTION) == "<|im_start|><|im_end|>"


def test_template_cannot_leave_the_sandbox(with_source: Callable[[str], TargetTemplate]) -> None:
    """A template out of a downloaded checkpoint reaches no Python internals and alters no message."""
    with pytest.raises(jinja2.exceptions.SecurityError):
        with_source("{{ ''.__class__.__mro__[1].__subclasses__() }}").render(QUESTION)
    with pytest.raises(jinja2.exceptions.SecurityError):
        with_source("{{ messages.append(1) }}").render(QUESTION)


@pytest.mark.parametrize(("thinking", "expected"), [("default", "unset"), ("on", "True"), ("off", "False")])
def test_thinking_reaches_templates_that_know_it(
    with_source: Callable[[str], TargetTemplate], thinking: str, expected: str
) -> None:
    """`default` leaves the choice to the template."""
    source = "{{ enable_thinking if enable_thinking is defined else 'unset' }}"
    assert with_source(source).render(QUESTION, thinking=thinking) == expected


def test_probe_finds_tool_support(target_dir: Path, tool_target_dir: Path) -> None:
    """SmolLM2's template shows no tools; one after Qwen's pattern does."""
    assert probe_tool_format(load_target_template(target_dir)) == "bfcl_text"
    assert probe_tool_format(load_target_template(tool_target_dir)) == "native"


@pytest.mark.parametrize(
    "source",
    [
        "{{ tools | tojson }}{{ messages[0].content }}",
        "{{ raise_exception('tools are not supported') }}",
        "{% for m in messages %}{{ m.content + m.missing }}{% endfor %}",
    ],
)
def test_half_support_is_none(with_source: Callable[[str], TargetTemplate], source: str) -> None:
    """Tool documents without calls, a refusal, or a template that breaks on calls: all mean the text form."""
    assert probe_tool_format(with_source(source)) == "bfcl_text"


def test_call_arguments_are_objects_in_templates(tool_target_dir: Path) -> None:
    """OpenAI's JSON text of arguments is parsed before rendering, as SGLang does."""
    call = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = (*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]})
    assert '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>' in load_target_template(
        tool_target_dir
    ).render(messages)


def test_template_is_found_where_checkpoints_keep_it(target_dir: Path, tmp_path: Path) -> None:
    """A list of named templates gives the default one; chat_template.jinja goes before the config."""
    (tmp_path / "tokenizer.json").write_bytes((target_dir / "tokenizer.json").read_bytes())
    named = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "listed"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert load_target_template(tmp_path).render(QUESTION) == "listed"
    listed = template_digest(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("file")
    assert load_target_template(tmp_path).render(QUESTION) == "file"
    assert template_digest(tmp_path) != listed


def test_missing_template_and_tokenizer_are_named(target_dir: Path, tmp_path: Path) -> None:
    """One line each, with the file."""
    with pytest.raises(WorkloadError, match=r"tokenizer_config.json: No such file or directory"):
        load_target_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_bytes((target_dir / "tokenizer.json").read_bytes())
    with pytest.raises(WorkloadError, match=r"neither chat_template.jinja nor chat_template in tokenizer_config"):
        load_target_template(tmp_path)
