"""Target and drafter against plain implementations that share no code with them."""

from pathlib import Path

import pytest
import torch

from draftbench.engine.attention import Segment, additive_mask
from draftbench.engine.checkpoint import read_target_config
from draftbench.engine.draft_tree import DraftTree
from draftbench.engine.engine import Engine
from draftbench.engine.interface import GenerationRequest
from draftbench.engine.linear import packing_works
from draftbench.engine.proposers import BlockDrafter
from draftbench.engine.slots import CacheShape
from draftbench.engine.target_model import TargetModel
from tests.unit.engine.engine_driving import greedy, make_engine, run_prompts
from tests.unit.engine.tiny_models import PlainTarget, plain_draft_logits

PROMPTS = [[5, 1, 7, 3], [4], [11, 10, 9, 8, 7, 6, 5, 4, 3, 1], [0, 0, 6, 6, 1, 1, 7]]


@pytest.mark.parametrize("at_once", [1, 4])
def test_autoregressive_tokens_are_those_of_whole_sequence_recomputation(target: Path, at_once: int) -> None:
    """Cached, batched decoding gives the argmax of the plain model run afresh for each token."""
    plain = PlainTarget(target)
    outcomes = run_prompts(make_engine(target, None), PROMPTS, greedy(40), at_once)
    assert [outcome.ids for outcome in outcomes] == [plain.greedy(prompt, 40) for prompt in PROMPTS]


def test_chunked_prefill_equals_the_plain_model(target: Path) -> None:
    """A prompt of 300 tokens takes two chunks of 256; its continuation is unchanged."""
    prompt = [(index * index + 3 * index) % 12 for index in range(300)]
    outcome = run_prompts(make_engine(target, None), [prompt], greedy(10))[0]
    assert outcome.ids == PlainTarget(target).greedy(prompt, 10)


@pytest.mark.parametrize("packed", [False, True])
def test_tree_rows_see_their_ancestors_only(target: Path, packed: bool) -> None:
    """Each node's logits equal those of the sequence that leads to it, run by itself."""
    if packed and not packing_works(torch.float32, torch.device("cpu")):
        pytest.skip("this build of PyTorch packs no weights")
    cpu, float32 = torch.device("cpu"), torch.float32
    model = TargetModel(target, read_target_config(target), 64, float32, cpu, packed)
    shape, prompt = model.config.shape, [5, 1, 7, 3]
    tree = DraftTree((9, 2, 4, 6, 8, 2), (-1, 0, 0, 1, 2, 4))
    cache = CacheShape.of(shape, 64).allocate(float32, cpu)
    causal = torch.ones(4, 4, dtype=torch.bool).tril().numpy()
    with torch.inference_mode():
        mask = additive_mask(causal, 0, shape.group, float32, cpu)
        model.forward(torch.tensor(prompt), torch.arange(4), [Segment(cache, 0, 4, mask)])
        mask = additive_mask(tree.ancestors, 4, shape.group, float32, cpu)
        positions = torch.tensor([4 + depth for depth in tree.depths])
        hidden, _ = model.forward(torch.tensor(tree.tokens), positions, [Segment(cache, 4, 6, mask)])
        logits = model.logits(hidden)
    plain = PlainTarget(target)
    for node in range(tree.width):
        path = [tree.tokens[index] for index in range(tree.width) if tree.ancestors[node, index]]
        torch.testing.assert_close(logits[node], plain.run(prompt + path)[0][-1], atol=2e-5, rtol=1e-4)


def _decoding(engine: Engine, prompt: list[int], steps: int) -> None:
    """Leave one request of `engine` in the middle of decoding."""
    engine.submit(GenerationRequest("r", tuple(prompt), greedy(200)))
    for _ in range(1 + steps):
        engine.step()


@pytest.mark.parametrize("steps", [0, 1, 6])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_draft_distributions_equal_the_plain_drafter(
    target: Path, drafter: Path, prompt: list[int], steps: int
) -> None:
    """After prefill and after tree commits, the drafter's cached context gives what whole sequences give."""
    engine = make_engine(target, drafter, "DDTREE", 9)
    _decoding(engine, prompt, steps)
    running = engine._running[0]
    with torch.inference_mode():
        logits = BlockDrafter(engine._target, engine._drafter).logits([running])
    expected = plain_draft_logits(PlainTarget(target), drafter, running.slot.tokens, running.pending)
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-4)


def test_drafts_may_be_limited_to_the_first_ids_without_changing_output(target: Path, drafter: Path) -> None:
    """With a draft vocabulary of 5, AR's tokens stay and no draft of id 5 or more is ever proposed."""
    limited = make_engine(target, drafter, "DDTREE", 9, draft_vocabulary=5, max_running_requests=1)
    assert limited.describe()["draft_vocabulary"] == 5
    assert run_prompts(limited, PROMPTS, greedy(30))[2].ids == PlainTarget(target).greedy(PROMPTS[2], 30)
    _decoding(limited, PROMPTS[0], 1)
    with torch.inference_mode():
        (tree,) = limited._decoder._proposer.propose(limited._running)
    assert set(tree.tokens[1:]) <= set(range(5))
    assert make_engine(target, drafter, "DDTREE", 9).describe()["draft_vocabulary"] == 12
