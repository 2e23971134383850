"""What to write instead of an op that blocks a match, by the code of the refusal and the op."""

from __future__ import annotations

_SCORES = {
    "sort": "A softmax of sorted scores is no attention: leave each score at its own key.",
    "topk": "Scores taken out by topk lose their keys: hide the others with a mask computed from inputs instead.",
    "cumsum": "A running sum mixes keys, which is no attention: take it out.",
    "round": "Leave the scores unrounded.",
    "flip": "Flip K before the product (k.flip(-2)): the scores come out in the same order.",
    "roll": "Roll K before the product (k.roll(n, -2)): the scores come out in the same order.",
    "cat": "Join the keys, not the scores: q @ torch.cat((k1, k2), -2).mT.",
    "slice": "Slice K (or Q) before the product, not the scores.",
    "select": "Select from K (or Q) before the product, not from the scores.",
    "index": "Index K (or Q) before the product, not the scores.",
    "gather": "Gather K before the product, not the scores.",
    "pad": "Pad K before the product, and mask the padded keys.",
    "constant_pad_nd": "Pad K before the product, and mask the padded keys.",
    "slice_scatter": "Write no slice of the scores: use masked_fill with a condition on positions.",
    "copy": "Write no slice of the scores: use masked_fill with a condition on positions.",
    "index_put": "Write no elements of the scores: use masked_fill with a condition on positions.",
    "tril": "tril puts 0, which hides nothing: masked_fill(~torch.ones(q, k, dtype=torch.bool).tril(), -inf).",
    "triu": "triu puts 0, which hides nothing: masked_fill(~torch.ones(q, k, dtype=torch.bool).triu(), -inf).",
    "dropout": "Set its p to 0, or call model.eval().",
    "relu": "Write clamp(min=0), which is the same and understood.",
    "pow": "Write x * x for x ** 2, or x.sqrt() for x ** 0.5.",
    "softplus": "Write torch.log(1 + s.exp()), which is understood.",
    "silu": "Write s * torch.sigmoid(s), which is understood.",
    "layer_norm": "Normalise Q or K before the product, not the scores over the keys.",
}
_WEIGHTS = {
    "add": "Add after the product instead: (w + b) @ v is w @ v + b @ v.",
    "sub": "Subtract after the product instead: (w - b) @ v is w @ v - b @ v.",
    "nan_to_num": "Replace NaN by 0: nan_to_num(0.0).",
    "slice": "Slice the keys before the softmax, or V and the weights by a mask.",
    "round": "Leave the weights unrounded.",
}

EDITS = {("ATTNC-SCORE-OP", op): text for op, text in _SCORES.items()} | {
    ("ATTNC-WEIGHTS-OP", op): text for op, text in _WEIGHTS.items()
}
"""(code, op without overload) → sentence. Each is proved by a pair in tests/compiler/fuse/test_nearest.py."""
