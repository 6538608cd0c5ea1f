"""What fits, in which order, and which ranks."""

import hashlib
from pathlib import Path

import pytest

from draftbench.errors import WorkloadError
from draftbench.workloads.definitions import WorkloadDefinition
from draftbench.workloads.items import SourceItem, SourceRequest
from draftbench.workloads.selection import Renderer, fitting_items, rank_key, select
from draftbench.workloads.templates import TargetTemplate, load_target_template

SPECIALS = 3
"""Two special tokens frame the user's message, one opens the reply; each is one token, everything else bytes."""
PLAIN_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>{{ 'assistant\n' }}"
)
OVERHEAD = SPECIALS + len("user\n") + len("\n") + len("assistant\n")


@pytest.fixture(scope="module")
def template(target_dir: Path) -> TargetTemplate:
    """Byte tokens and a template without a default system message."""
    loaded = load_target_template(target_dir)
    return TargetTemplate(PLAIN_CHATML, loaded.special_tokens, loaded.tokenizer)


def definition(**changes: object) -> WorkloadDefinition:
    """A definition that allows nearly everything."""
    settings = {"set": "code-humaneval", "ranks": (0, 1), "max_new_tokens": 10, "max_context": 1000}
    return WorkloadDefinition.model_validate(settings | changes)


def single(item_id: str, length: int) -> SourceItem:
    """One request whose message has `length` bytes."""
    return SourceItem(item_id, (SourceRequest(({"role": "user", "content": "x" * length},)),))


def conversation(item_id: str, lengths: list[int]) -> SourceItem:
    """Requests whose prompts have the given message lengths."""
    return SourceItem(item_id, tuple(SourceRequest(({"role": "user", "content": "x" * length},)) for length in lengths))


def fit(items: list[SourceItem], template: TargetTemplate, **changes: object):
    """Render items under a definition."""
    return fitting_items(items, Renderer(template, "none", definition(**changes)).render)


def test_prompt_length_is_exact(template: TargetTemplate) -> None:
    """A message of 5 bytes costs its bytes, the role names, newlines and three special tokens."""
    fitting = fit([single("a", 5)], template)
    assert fitting.items[0].turns[0].prompt_tokens == 5 + OVERHEAD


def test_limits_are_inclusive(template: TargetTemplate) -> None:
    """A prompt of exactly max_prompt_tokens fits, one more does not; likewise prompt plus cap and max_context."""
    limit = 50 + OVERHEAD
    by_prompt = fit([single("fits", 50), single("long", 51)], template, max_prompt_tokens=limit)
    assert [item.item_id for item in by_prompt.items] == ["fits"]
    assert by_prompt.dropped == {"prompt longer than max_prompt_tokens": ("long",)}
    by_context = fit([single("fits", 50), single("long", 51)], template, max_context=limit + 10)
    assert [item.item_id for item in by_context.items] == ["fits"]
    assert by_context.dropped == {"prompt and cap exceed max_context": ("long",)}


def test_conversation_is_cut_where_it_stops_fitting(template: TargetTemplate) -> None:
    """Turns before the first that is too long stay, later ones go even where they would fit."""
    item = conversation("c", [10, 20, 60, 30])
    fitting = fit([item], template, max_prompt_tokens=50 + OVERHEAD)
    assert [turn.prompt_tokens - OVERHEAD for turn in fitting.items[0].turns] == [10, 20]
    assert fitting.items[0].turns_available == 4
    assert len(fit([item], template, max_turns=1).items[0].turns) == 1


def test_too_few_turns_get_no_rank(template: TargetTemplate) -> None:
    """min_turns counts the turns that are left after every limit."""
    items = [conversation("short", [1, 2]), conversation("cut", [1, 60, 2]), conversation("good", [1, 2, 3])]
    fitting = fit(items, template, max_prompt_tokens=50 + OVERHEAD, min_turns=3, max_turns=3)
    assert [item.item_id for item in fitting.items] == ["good"]
    assert fitting.dropped == {
        "fewer turns than min_turns": ("short",),
        "prompt longer than max_prompt_tokens": ("cut",),
    }


def test_template_refusal_drops_the_item(template: TargetTemplate) -> None:
    """An item that the template raises on is counted with the template's own words."""
    refusing = TargetTemplate(
        "{{ raise_exception('no system role') if messages[0].role == 'system' else 'x' }}", {}, template.tokenizer
    )
    item = SourceItem("s", (SourceRequest(({"role": "system", "content": "x"},)),))
    assert fit([item], refusing).dropped == {"refused by the chat template: no system role": ("s",)}


def test_ranks_follow_the_hash(template: TargetTemplate) -> None:
    """Order is that of sha256("seed:id"); a larger sample contains the smaller; other ranks are disjoint."""
    names = [f"item-{number}" for number in range(20)]
    fitting = fit([single(name, 5) for name in names], template)

    def chosen(start: int, stop: int, seed: int = 0) -> list[str]:
        return [item.item_id for item in select(fitting, definition(ranks=(start, stop), seed=seed))]

    expected = sorted(names, key=lambda name: hashlib.sha256(b"0:" + name.encode()).digest())
    assert chosen(0, 20) == expected
    assert chosen(0, 4) == chosen(0, 12)[:4]
    assert not set(chosen(0, 4)) & set(chosen(4, 20))
    assert chosen(0, 20, seed=1) != expected


def test_rank_key_is_stable_for_ever() -> None:
    """The value that `printf '0:HumanEval/0' | sha256sum` prints."""
    assert rank_key(0, "HumanEval/0") == "c13dedc5a6e3440bb8dd584893408ac8b29b368fa80fa6db45a763929bacaf0a"


def test_more_ranks_than_items_is_one_clear_line(template: TargetTemplate) -> None:
    """The error says how many fit and why the others do not."""
    fitting = fit([single("a", 5), single("b", 500)], template, max_prompt_tokens=100)
    with pytest.raises(WorkloadError) as caught:
        select(fitting, definition(ranks=(0, 2)))
    assert str(caught.value) == (
        "workload code-humaneval: ranks 0 to 2 asked for, 1 items fit (1 dropped: prompt longer than "
        "max_prompt_tokens); lower ranks or raise the limits"
    )
