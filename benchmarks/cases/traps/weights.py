"""What happens to the weights between the softmax and V."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.cases.traps.pairs import SCALE, H, Pair, S, scores, square

PAIRS = [
    Pair(
        "weights also returned",
        lambda q, k, v: (lambda w: (w @ v, w))(scores(q, k).softmax(-1)),
        lambda q, k, v: (lambda w: (w @ v, q))(scores(q, k).softmax(-1)),
        code="ATTNC-WEIGHTS-USED",
    ),
    Pair(
        "dropout in training",
        lambda q, k, v: F.dropout(scores(q, k).softmax(-1), 0.5, True) @ v,
        lambda q, k, v: F.dropout(scores(q, k).softmax(-1), 0.5, False) @ v,
        code="ATTNC-DROPOUT",
        random=True,
    ),
    Pair(
        "softmax over the queries",
        lambda q, k, v: scores(q, k).softmax(-2) @ v,
        lambda q, k, v: scores(q, k).softmax(-1) @ v,
        code="ATTNC-CONTRACTION",
    ),
    Pair(
        "softmax over the heads",
        lambda q, k, v: scores(q, k).softmax(1) @ v,
        lambda q, k, v: scores(q, k).softmax(3) @ v,
        code="ATTNC-CONTRACTION",
    ),
    Pair(
        "weights mixed over the heads",
        lambda q, k, v: torch.einsum("gh,bhqk->bgqk", torch.eye(H, dtype=q.dtype) + 0.1, scores(q, k).softmax(-1)) @ v,
        lambda q, k, v: torch.einsum("bhqk,bhkd->bhqd", scores(q, k).softmax(-1), v),
        code="ATTNC-CONTRACTION",
    ),
    Pair(
        "a classifier's softmax",
        lambda q, k, v: scores(q, k).softmax(-1).argmax(-1),
        lambda q, k, v: scores(q, k).softmax(-1) @ v,
        code="ATTNC-NOT-ATTENTION",
    ),
    Pair(
        "NaN replaced by another number than 0",
        lambda q, k, v: scores(q, k).softmax(-1).nan_to_num(0.5) @ v,
        lambda q, k, v: scores(q, k).softmax(-1).nan_to_num(0.0) @ v,
        code="ATTNC-WEIGHTS-OP",
    ),
    Pair(
        "weights transposed",
        lambda q, k, v: scores(q, k).softmax(-1).mT @ v,
        lambda q, k, v: scores(q, k).softmax(-1).mT.mT @ v,
        square,
        code="ATTNC-CONTRACTION",
    ),
    Pair(
        "weights on the right",
        lambda q, k, v: (v.mT @ scores(q, k).softmax(-1)).mT,
        lambda q, k, v: (v.mT @ scores(q, k).softmax(-1).mT).mT,
        code="ATTNC-CONTRACTION",
    ),
    Pair(
        "a bias after the softmax",
        lambda q, k, v: (scores(q, k).softmax(-1) + torch.eye(S, dtype=q.dtype)) @ v,
        lambda q, k, v: (scores(q, k) + torch.eye(S, dtype=q.dtype)).softmax(-1) @ v,
        code="ATTNC-WEIGHTS-OP",
    ),
    Pair(
        "a factor divided by the weights",
        lambda q, k, v: (2.0 / scores(q, k).softmax(-1)) @ v,
        lambda q, k, v: (scores(q, k).softmax(-1) / 2.0) @ v,
        code="ATTNC-WEIGHTS-OP",
    ),
    Pair(
        "weights squared",
        lambda q, k, v: (lambda w: (w * w) @ v)(scores(q, k).softmax(-1)),
        lambda q, k, v: (lambda w: (w * 0.5) @ v)(scores(q, k).softmax(-1)),
        code="ATTNC-WEIGHTS-OP",
    ),
    Pair(
        "scale after the softmax",
        lambda q, k, v: (q @ k.mT).softmax(-1) * SCALE @ v,
        lambda q, k, v: (q @ k.mT * SCALE).softmax(-1) @ v,
    ),
    Pair(
        "softmax of a softmax",
        lambda q, k, v: scores(q, k).softmax(-1).softmax(-1) @ v,
        lambda q, k, v: scores(q, k).softmax(-1) @ v,
        code="ATTNC-NOT-ATTENTION",
    ),
    Pair(
        "a difference of weights scaled as a whole",
        lambda q, k, v: ((scores(q, k).softmax(-1) - scores(k, q).softmax(-1)) * 0.3) @ v,
        lambda q, k, v: (scores(q, k).softmax(-1) - 0.3 * scores(k, q).softmax(-1)) @ v,
        code="ATTNC-WEIGHTS-OP",
        attentions=2,
    ),
    Pair(
        "softmax in half precision",
        lambda q, k, v: scores(q, k).to(torch.float16).softmax(-1).to(q.dtype) @ v,
        lambda q, k, v: scores(q, k).softmax(-1, dtype=torch.float32).to(q.dtype) @ v,
    ),
]
