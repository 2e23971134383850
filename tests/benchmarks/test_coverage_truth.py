"""What the coverage benchmark counts and judges: ground truth, errors, positions, models of the zoo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.coverage.compare import judge_all, run, run_skewed, run_wide
from benchmarks.coverage.measure import measure_model
from benchmarks.coverage.positions import Positions, count_positions
from benchmarks.coverage.results import listed
from benchmarks.coverage.tally import complaints
from benchmarks.coverage.truth import Truth, count_sites

# -- the ground-truth rule ---------------------------------------------------------------------------------------------


class Block(nn.Module):
    """One attention and one router; the ways they are written are the tests'."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.gate = (nn.Linear(8, 8) for _ in range(4))
        self.router = nn.Linear(8, 3)

    def scores(self, x: Tensor) -> Tensor:
        return self.q(x) @ self.k(x).transpose(-2, -1)

    def forward(self, x: Tensor) -> Tensor:
        attended = torch.softmax(self.scores(x) / 8**0.5, -1) @ self.v(x)
        expert = torch.softmax(self.router(attended.flatten(0, 1)), -1)
        return attended * expert.sum(-1).view(2, 5, 1)


class Added(Block):
    """The scores go through a mask that is written into a view of them."""

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        assembled = torch.zeros_like(scores)
        assembled[:, :, 1:] = scores[:, :, 1:]
        return torch.softmax(assembled, -1) @ self.v(x)


class Dropped(Block):
    """Of two attentions one goes nowhere."""

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.scores(x), -1)
        torch.softmax(2 * self.scores(x), -1) @ self.v(x)
        return weights @ self.v(x)


class Gate(Block):
    """A softmax between two linear layers."""

    def forward(self, x: Tensor) -> Tensor:
        return self.v(torch.softmax(self.gate(x), -1))


class Pooling(Block):
    """The weights come from a linear layer, but meet a product."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.gate(x)[..., :1].transpose(-2, -1), -1) @ self.v(x)


class Unread(Block):
    """The scores are a product, but the weights never meet one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.scores(x), -1).exp()


class Native(Block):
    def forward(self, x: Tensor) -> Tensor:
        y = x.unsqueeze(1)
        return super().forward(nn.functional.scaled_dot_product_attention(y, y, y).squeeze(1))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Block, Truth(sites=1, dead=0, native=0, others=1)),
        (Added, Truth(sites=1, dead=0, native=0, others=0)),
        (Native, Truth(sites=1, dead=0, native=1, others=1)),
        (Dropped, Truth(sites=2, dead=1, native=0, others=0)),
        (Gate, Truth(sites=0, dead=0, native=0, others=1)),
        (Pooling, Truth(sites=0, dead=0, native=0, others=1)),
        (Unread, Truth(sites=0, dead=0, native=0, others=1)),
    ],
)
def test_ground_truth(kind: type[Block], expected: Truth) -> None:
    assert count_sites(kind(), {"x": torch.randn(2, 5, 8)}) == expected


# -- judging and measuring ---------------------------------------------------------------------------------------------


class Noisy(Block):
    """Draws random numbers, and returns a number, a flag and nothing."""

    def forward(self, x: Tensor) -> Any:
        picked = torch.multinomial(torch.ones(2, 5).float(), 3)
        noise = torch.rand(2, 5, 8) + 0 * torch.tensor(torch.finfo(x.dtype).max)
        return {"y": super().forward(x + noise).gather(1, picked[..., None].expand(-1, -1, 8)), "picked": picked}, None


def test_judging() -> None:
    model, inputs = Noisy().eval(), {"x": torch.randn(2, 5, 8)}
    eager, reference = run(model, inputs), run_wide(model, inputs)
    assert reference[0].dtype == torch.float64
    assert judge_all(run(model, inputs), eager, reference).right is True
    assert judge_all(run_skewed(model, inputs), eager, reference).right is False
    y, picked = eager
    assert judge_all([y * (1 + 1e-4), picked], eager, reference).right is False
    assert judge_all([torch.where(y == y.max(), torch.nan, y), picked], eager, reference).right is False
    assert judge_all([y, picked.flip(-1)], eager, reference).right is False
    assert judge_all([y], eager, reference).right is False
    assert judge_all([picked], [picked], [picked]).right is None


class Experts(nn.Module):
    """Rows 0 to 1 go to the first expert, none to the second, 2 to 5 to the third, the last to none."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3, 16, 16))

    def forward(self, x: Tensor) -> Tensor:
        return torch._grouped_mm(x, self.weights, offs=torch.tensor([2, 2, 6], dtype=torch.int32))


def test_groups_of_rows_in_float64() -> None:
    model, x = Experts(), torch.randn(7, 16)
    (wide,) = run_wide(model, {"x": x})
    weights = model.weights.detach().double()
    expected = torch.cat([x[:2].double() @ weights[0], x[2:6].double() @ weights[2]])
    torch.testing.assert_close(wide[:6], expected)
    torch.testing.assert_close(run(model, {"x": x})[0][:6].double(), expected, rtol=1e-5, atol=1e-5)


class Two(nn.Module):
    """One layer of code used twice behind a graph break, so that one graph serves both."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


@pytest.mark.slow
def test_a_measured_module() -> None:
    torch.manual_seed(1)
    found = measure_model(Two().eval(), {"x": torch.randn(2, 5, 8)}, "two", "other", 2)
    assert (found.outcome, found.sites, found.fused, found.left, found.beyond) == ("measured", 2, 2, (), ())
    assert found.reported == found.ran == 2 and found.right and not found.blind
    assert "graph_break()" in found.breaks[0]
    assert not complaints([found]).any


def apply_rotary_pos_emb(x: Tensor) -> Tensor:
    return x.flip(-1)


class Rotary(nn.Module):
    """``RotaryEmbedding.forward`` makes tables; only their use counts."""

    def forward(self, x: Tensor) -> Tensor:
        return apply_rotary_pos_emb(x) + apply_rotary_pos_emb(x)


def test_positions_are_told_by_names() -> None:
    x = {"x": torch.randn(2, 8)}
    assert count_positions(Rotary(), x) == Positions(rotations=2)
    plain, biased = nn.Module(), nn.Module()
    plain.forward = biased.forward = lambda x: x  # type: ignore[method-assign]
    biased.register_buffer("relative_position_index", torch.zeros(2))
    assert count_positions(plain, x) == Positions()
    assert count_positions(biased, x) == Positions(relative=True)


# -- the zoo itself ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "bert", "led", "whisper", "clip", "swin", "deformable_detr", "vits"])
def test_a_model_of_the_zoo(name: str) -> None:
    """It is made as listed, the same each time, and its weights show what its attentions do."""
    zoo = pytest.importorskip("benchmarks.coverage.zoo")
    entry, again = zoo.build(name), zoo.build(name)
    assert (entry.family, count_sites(entry.model, entry.inputs).sites) == (listed()[name].family, listed()[name].sites)
    eager = run(entry.model, entry.inputs)
    assert all(map(torch.equal, eager, run(again.model, again.inputs)))
    reference = run_wide(entry.model, entry.inputs)
    assert judge_all(eager, eager, reference).right is True
    assert judge_all(run_skewed(entry.model, entry.inputs), eager, reference).right is False


@pytest.mark.slow
def test_shrinking_keeps_what_must_agree() -> None:
    shrink = pytest.importorskip("benchmarks.coverage.shrink")
    transformers = pytest.importorskip("transformers")
    gemma = shrink.shrunk(transformers.Gemma3TextConfig)
    assert (gemma.num_hidden_layers, gemma.layer_types) == (2, ["sliding_attention", "full_attention"])
    assert gemma.vocab_size == 128 and max(gemma.eos_token_id, gemma.bos_token_id, gemma.pad_token_id) < 128
    clip = shrink.shrunk(transformers.CLIPConfig)
    assert clip.text_config.hidden_size == clip.vision_config.hidden_size == 64
    with pytest.raises(Exception, match="layers"):
        shrink._made(transformers.BertConfig, {"num_hidden_layers": "layers"}, keep={})
