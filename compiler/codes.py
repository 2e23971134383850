"""Every code a report can carry: what it says, why it happens and what to do. docs/codes.md is generated from here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One stable code. ``level``: ``left`` (an attention left to the host), ``other`` (not an attention), ``host``
    (the whole graph left to the host), ``downgrade`` (right, but slower or heavier than it could be), ``inexact`` (less
    exact than in the model's own dtype), ``derive`` (no incremental program), ``artifact`` (no artifact), ``error``.
    """

    level: str
    text: str
    cause: str
    remedy: str


CODES: dict[str, Code] = {
    "ATTNC-FUSED": Code("fused", "fused", "The attention was matched and has a kernel.", "Nothing."),
    # -- softmaxes that are no attention -----------------------------------------------------------------------------
    "ATTNC-NOT-ATTENTION": Code(
        "other",
        "a softmax that is no attention",
        "Its input is no Q·Kᵀ, or its output never meets a V: a classifier, a router, a gate.",
        "Nothing: the host runs it.",
    ),
    # -- ONNX --------------------------------------------------------------------------------------------------------
    "ATTNC-ONNX-REGION": Code(
        "downgrade",
        "a part of an ONNX model runs in onnxruntime",
        "Operators without a form in torch, or whose sizes are data (NonZero, a loop), run as they stand; values are "
        "passed without a copy where types allow.",
        "Nothing, where the share is small. Else fold what is constant with onnxsim or export from torch.",
    ),
    "ATTNC-ONNX-WHOLE": Code(
        "host",
        "a whole ONNX model runs in onnxruntime",
        "An input or output is no tensor (a sequence, strings) or of unknown rank, or torch.export refuses the model.",
        "Give the model inputs of known rank; cut off what handles sequences or strings, and compile the rest.",
    ),
    # -- attentions left to the host ---------------------------------------------------------------------------------
    "ATTNC-WEIGHTS-USED": Code(
        "left",
        "the attention weights are read elsewhere too",
        "A fused kernel never makes the weights; the program returns or reuses them.",
        "Do not return them (output_attentions=False, need_weights=False).",
    ),
    "ATTNC-DROPOUT": Code(
        "left",
        "attention dropout in training mode",
        "The kernel draws no random numbers; leaving dropout out would be silently wrong.",
        "Set the attention dropout to 0, or call model.eval().",
    ),
    "ATTNC-WEIGHTS-OP": Code(
        "left",
        "an op on the attention weights that is not understood",
        "Something between the softmax and P·V is not a factor, a mask, a cast or a view.",
        "Take the op out, or move it before the softmax or after P·V where the mathematics allows.",
    ),
    "ATTNC-SCORE-OP": Code(
        "left",
        "an op on the scores that is not understood",
        "Something between Q·Kᵀ and the softmax is not in the score language.",
        "Take the op out, or do it to Q, K or a bias before the product.",
    ),
    "ATTNC-SCORE-CONDITION": Code(
        "left",
        "a mask that depends on the scores",
        "A select whose condition is computed from Q·Kᵀ itself.",
        "Compute the mask from positions or inputs.",
    ),
    "ATTNC-SOFTMAX-AXIS": Code(
        "left", "the softmax axis is not a constant", "The dimension is chosen at run time.", "Pass a constant dim."
    ),
    "ATTNC-SOFTMAX-FORM": Code(
        "left",
        "a softmax written out in an unknown way",
        "Exponentials of scores are divided by a sum, but not provably by their own: something else is subtracted, "
        "added or read on the way.",
        "Call softmax, or divide exp(s - max(s)) by its own sum and by nothing else.",
    ),
    "ATTNC-CONTRACTION": Code(
        "left",
        "a contraction of an unsupported form",
        "Q·Kᵀ or P·V sums over other dimensions than one, or does more than multiply and sum.",
        "Write it as matmul, bmm or einsum over one dimension.",
    ),
    "ATTNC-LAYOUT": Code(
        "left",
        "a view that mixes axes",
        "A reshape between Q·Kᵀ, the softmax and P·V cuts through the query, key or feature axis.",
        "Take the view out, or keep positions and features in dimensions of their own.",
    ),
    "ATTNC-SINGLE-KEY": Code(
        "left", "a softmax over a single key", "The weight is always 1; there is nothing to fuse.", "Nothing."
    ),
    "ATTNC-EMPTY": Code("left", "an empty tensor", "A dimension has length 0.", "Nothing: the host returns zeros."),
    "ATTNC-NOTHING-VISIBLE": Code(
        "left", "a mask that hides everything", "No query sees any key.", "Check the mask; True means visible."
    ),
    "ATTNC-DTYPE": Code(
        "left",
        "no kernel for this dtype",
        "Kernels take float32, bfloat16 and float16.",
        "Cast Q, K and V to one of them.",
    ),
    "ATTNC-DEVICE": Code(
        "left",
        "no kernel for this device",
        "Kernels are emitted for CPUs, and for CUDA and HIP devices of the kinds that `attnc kernels` knows.",
        "Move the model to the CPU or to one of those devices.",
    ),
    "ATTNC-SDPA-ARGUMENT": Code(
        "left",
        "an SDPA argument that is not understood",
        "An argument of scaled_dot_product_attention is known only at run time.",
        "Pass constants for is_causal, enable_gqa and scale.",
    ),
    "ATTNC-PLAN": Code(
        "left",
        "no kernel plan",
        "The formula has a term that kernels cannot compute.",
        "See the reason; please report the formula.",
    ),
    # -- downgrades --------------------------------------------------------------------------------------------------
    "ATTNC-TRAINING-RECOMPUTE": Code(
        "downgrade",
        "gradients by recomputing the attention",
        "The forward pass is fused; the backward pass recomputes the scores with plain operators.",
        "Nothing, or torch.no_grad() where no gradient is needed.",
    ),
    "ATTNC-DENSE-SIDE": Code(
        "downgrade",
        "a dense query × key tensor is read",
        "A mask or bias could not be written as a formula, so the kernel loads it: O(S²) memory traffic.",
        "Build the mask from positions, or look at the reason for the op that stopped the formula.",
    ),
    "ATTNC-TILE-GUARDS": Code(
        "downgrade",
        "tiles are tested one by one",
        "The mask's visible tiles are not at most three runs, or isl's budget ran out.",
        "Nothing: the result is exact.",
    ),
    "ATTNC-ROPE-UNPROVED": Code(
        "downgrade",
        "what looks like rotary embedding is not proved to be one",
        "A sum of features times cosines and sines could not be shown to rotate pairs by angles linear in a position.",
        "Nothing: it runs as written. The reason names what is missing, often a table whose numbers are an input.",
    ),
    "ATTNC-NO-COMPILER": Code(
        "downgrade",
        "no C++ compiler",
        "Attention runs by chunked ATen operators.",
        "Install g++ or clang++, or set CXX.",
    ),
    # -- less exact --------------------------------------------------------------------------------------------------
    "ATTNC-KV-PERPLEXITY": Code(
        "inexact",
        "a cache that changes perplexity by more than 3 %",
        "Keys and values are kept in too few bits for this model. Keys suffer first: their rounding moves every score, "
        "that of values is averaged.",
        "Use more bits, for keys first: --kv int8/int4 (keys in int8, values in int4), then --kv int8.",
    ),
    # -- graphs left to the host -------------------------------------------------------------------------------------
    "ATTNC-DISABLED": Code("host", "attnc is switched off", "ATTNC_DISABLE=1 is set.", "Unset ATTNC_DISABLE."),
    "ATTNC-HOST-AUTOGRAD-FUNCTION": Code(
        "host",
        "a custom autograd.Function",
        "Its backward would be lost by tracing through it.",
        "Use torch.library.custom_op, or compile under torch.no_grad().",
    ),
    "ATTNC-HOST-TENSOR-HOOK": Code(
        "host", "a tensor hook", "Hooks cannot be traced.", "Register it outside the compiled function."
    ),
    "ATTNC-HOST-VMAP": Code(
        "host",
        "a torch.func transform inside the model",
        "grad and jvp cannot be traced here, nor a vmap that draws random numbers, writes or has gradients.",
        "Write the batch dimension out, or run under torch.no_grad().",
    ),
    "ATTNC-HOST-HIDDEN-WRITE": Code(
        "host",
        "a write that a functional graph would lose",
        "An in-place write reaches a tensor in a way that tracing does not record.",
        "See the reason; write out of place.",
    ),
    "ATTNC-HOST-SIZES": Code(
        "host",
        "a shape that is no expression over positive sizes",
        "A dimension has no lower bound, or uses a function sizes don't have.",
        "Give the dimension bounds (torch.export.Dim, mark_dynamic).",
    ),
    "ATTNC-HOST-OVERLAPPING-WRITES": Code(
        "host",
        "two inputs overlap in memory and one is written",
        "A functional graph cannot say what the other then holds.",
        "Clone one of them.",
    ),
    "ATTNC-HOST-TENSOR-SUBCLASS": Code(
        "host", "a tensor subclass among the inputs", "Only plain tensors are traced.", "Unwrap the tensor."
    ),
    "ATTNC-HOST-CHECKPOINT-POLICY": Code(
        "host",
        "checkpoint with a policy of its own",
        "context_fn decides what is recomputed; inlining the body would lose it.",
        "Use checkpoint without context_fn.",
    ),
    "ATTNC-HOST-HIGHER-ORDER-OP": Code(
        "host",
        "a higher-order op that isn't known to survive tracing",
        "See the reason.",
        "Move it out of the compiled function.",
    ),
    "ATTNC-HOST-FROZEN-STORAGE": Code(
        "host",
        "an in-place write to a dropout's result",
        "Tracing freezes the result of a dropout in training mode.",
        "Write to a clone, or call model.eval().",
    ),
    "ATTNC-HOST-MUTATION": Code(
        "host",
        "a write that could not be put back",
        "A mutated input could not be matched to its new value.",
        "Please report it.",
    ),
    "ATTNC-HOST-FINISH-FAILED": Code(
        "host", "the host rejected the rewritten graph", "The error is quoted in the reason.", "Please report it."
    ),
    "ATTNC-HOST-EXPORT-FAILED": Code(
        "host", "the graph could not be traced", "torch raised an error; it is quoted in the reason.", "See the reason."
    ),
    "ATTNC-HOST-INTERNAL": Code(
        "host",
        "an internal error",
        "A pass raised an error; the original graph runs on the host.",
        "Please report it with the dump (ATTNC_DUMP=dir).",
    ),
    # -- no incremental program ----------------------------------------------------------------------------------
    "ATTNC-DERIVE-INPUT": Code(
        "derive",
        "the model's inputs or outputs don't fit",
        "It isn't a function of token ids [B, S] to logits [B, S, vocabulary], or torch.export refuses it.",
        "Name the input with token_input=; give the model no other inputs.",
    ),
    "ATTNC-DERIVE-MIXES": Code(
        "derive",
        "tokens are mixed outside attention",
        "Something shifts, sums, sorts or reshapes along the tokens, so a token's result needs more than itself and "
        "cached keys and values: a convolution or pooling over time, recurrent state, a look-up in other tokens.",
        "Take it out, or do it along features.",
    ),
    "ATTNC-DERIVE-BATCH": Code(
        "derive",
        "requests are mixed",
        "A result depends on other requests of the batch, or on a request's number; with batch_invariant=True also "
        "where only bits would.",
        "Compute each row of the batch by itself.",
    ),
    "ATTNC-DERIVE-LENGTH": Code(
        "derive",
        "the total length enters",
        "A value depends on how many tokens there are in all, which changes with every new one.",
        "Compute it from the token's own position.",
    ),
    "ATTNC-DERIVE-NOT-CAUSAL": Code(
        "derive",
        "a token may see a later one",
        "The mask is not proved to hide every key behind its query.",
        "Use a causal mask; a bidirectional model has no incremental form.",
    ),
    "ATTNC-DERIVE-ATTENTION": Code(
        "derive",
        "an attention of a form that pages can't hold",
        "Its keys aren't the tokens', its scores read data of single tokens or a batch, or a row may see no key.",
        "See the reason.",
    ),
    "ATTNC-DERIVE-NO-RULE": Code(
        "derive",
        "an operator nothing is known of",
        "No rule says whether it keeps tokens apart, so it is taken not to.",
        "Write it with operators of the list in compiler/derive/rules.",
    ),
    "ATTNC-DERIVE-RANDOM": Code(
        "derive",
        "random numbers",
        "Dropout in training mode, or noise: the result isn't a function of the tokens.",
        "Call model.eval().",
    ),
    "ATTNC-DERIVE-STATE": Code(
        "derive",
        "state of its own",
        "The model writes to a buffer, such as a cache or a counter.",
        "Use it without its own cache (use_cache=False).",
    ),
    "ATTNC-DERIVE-CACHE": Code(
        "derive",
        "a cache of its own that can't be taken out",
        "Keys and values of earlier tokens aren't kept as they were, with new ones behind them at their own positions, "
        "or a result tells new tokens from earlier ones.",
        "Keep the cache as it comes, or use the model without it (use_cache=False).",
    ),
    "ATTNC-DERIVE-DATA-SIZE": Code(
        "derive",
        "a size or a choice read out of data",
        "The number of elements, or a branch, depends on the tokens' values.",
        "Use fixed sizes: where() instead of boolean indexing.",
    ),
    # -- no artifact -----------------------------------------------------------------------------------------------
    "ATTNC-ARTIFACT-OP": Code(
        "artifact",
        "an operator that an artifact can't hold",
        "An artifact runs without the model's code: control flow, operators of other libraries, objects that are no "
        "tensors and operators that touch files or other memory have no form in it.",
        "Take it out of the model's forward, or write it with operators of torch.",
    ),
    "ATTNC-ARTIFACT-CONSTANT": Code(
        "artifact",
        "a constant that an artifact can't hold",
        "Weights are kept in the safetensors format, which has no quantised, sparse or complex128 tensors.",
        "Convert it to an ordinary tensor.",
    ),
    "ATTNC-ARTIFACT-WHOLE": Code(
        "artifact",
        "nothing of the model is compiled",
        "The whole ONNX model runs in onnxruntime (ATTNC-ONNX-WHOLE): there is no program to write.",
        "Ship the ONNX file, or cut off what torch can't hold and compile the rest.",
    ),
    "ATTNC-ARTIFACT-TARGET": Code(
        "artifact",
        "no machine code can be made for a target",
        "The target's compiler isn't here or rejects the kernel, or the program was compiled for a GPU.",
        "Compile for a processor and name GPUs as targets; name the targets that can be built here.",
    ),
    "ATTNC-VERIFY": Code(
        "error",
        "a pass changed a number",
        "verify='numeric' found a pass whose result differs beyond rounding.",
        "Please report it with the dump (ATTNC_DUMP=dir).",
    ),
}
