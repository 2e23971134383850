"""Builds one model of the zoo: class, tiny configuration, random weights, inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.coverage.inputs import Inputs, Request, make_inputs
from benchmarks.coverage.shrink import shrunk

MOST_PARAMETERS = 60_000_000
FAINT = 0.01

_MAPPINGS = tuple(
    f"MODEL_{task}MAPPING_NAMES"
    for task in (
        "",
        "FOR_CAUSAL_LM_",
        "FOR_SEQ_TO_SEQ_CAUSAL_LM_",
        "FOR_MASKED_LM_",
        "FOR_SPEECH_SEQ_2_SEQ_",
        "FOR_CTC_",
        "FOR_IMAGE_CLASSIFICATION_",
        "FOR_DEPTH_ESTIMATION_",
        "FOR_OBJECT_DETECTION_",
        "FOR_IMAGE_TEXT_TO_TEXT_",
        "FOR_KEYPOINT_MATCHING_",
        "FOR_UNIVERSAL_SEGMENTATION_",
        "FOR_PRETRAINING_",
        "FOR_TEXT_TO_SPECTROGRAM_",
    )
)
"""Tables of model classes by model type, in the order in which they are searched."""


class NotBuilt(Exception):
    """A model that can't be made here: no class, or too large although shrunk."""


@dataclass(frozen=True)
class Entry:
    """A model in eval mode, float32, eager attention, with the inputs of one forward."""

    name: str
    family: str
    model: nn.Module
    inputs: Inputs


def build(model_type: str) -> Entry:
    """Make a model, the same weights each time. Raises NotBuilt, or whatever the model's own code raises."""
    kind = _model_class(model_type)
    config = shrunk(CONFIG_MAPPING[model_type], model_type)
    _check_size(kind, config)
    torch.manual_seed(0)
    model: nn.Module = kind._from_config(config, attn_implementation="eager").eval().float()
    _stir(model)
    family = _family(model_type, kind, config)
    parameters = frozenset(inspect.signature(kind.forward).parameters)
    inputs = make_inputs(Request(model_type, family, kind.main_input_name, config, parameters))
    return Entry(model_type, family, model, inputs)


def _model_class(model_type: str) -> Any:
    """The headless model; of a decoder the one with the language-model head."""
    order = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", *_MAPPINGS) if _is_decoder(model_type) else _MAPPINGS
    for name in _class_names(model_type, order):
        found = getattr(transformers, name, None)
        if found is not None and not getattr(found, "is_dummy", False):
            return found
    raise NotBuilt(f"no model class for {model_type!r}")


def _class_names(model_type: str, order: tuple[str, ...]) -> Iterator[str]:
    for mapping in order:
        names = _mapping(mapping).get(model_type, ())
        yield from (names,) if isinstance(names, str) else names


def _mapping(name: str) -> Mapping[str, Any]:
    return getattr(modeling_auto, name, {})


def _is_decoder(model_type: str) -> bool:
    others = ("MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    return model_type in _mapping("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES") and not any(
        model_type in _mapping(f"MODEL_FOR_{other}_MAPPING_NAMES") for other in others
    )


def _check_size(kind: Any, config: Any) -> None:
    """Count the parameters without storage; a model that can't be made that way is taken to be small."""
    with torch.device("meta"):
        try:
            count = sum(p.numel() for p in kind._from_config(config, attn_implementation="eager").parameters())
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error).lower() and "item" not in str(error).lower():
                raise
            return
    if count > MOST_PARAMETERS:
        raise NotBuilt(f"{count / 1e6:.0f} million parameters although shrunk")


def _stir(model: nn.Module) -> None:
    """Give parameters that start as zeros (biases, gates, layer scales, position tables) random values.

    A gate of 0 or 1e-5 would hide from the output what an attention behind it computes.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.numel() and parameter.abs().max() < FAINT:
                parameter.normal_(0, 0.1)


def _family(model_type: str, kind: Any, config: Any) -> str:
    parameters = inspect.signature(kind.forward).parameters
    if kind.main_input_name == "pixel_values" and "input_ids" not in parameters:
        return "vision"
    if kind.main_input_name in ("input_values", "input_features"):
        return "audio"
    if getattr(config, "is_encoder_decoder", False):
        return "encdec"
    if "pixel_values" in parameters:
        return "multimodal"
    if model_type in _mapping("MODEL_FOR_MASKED_LM_MAPPING_NAMES"):
        return "encoder"
    return "decoder" if model_type in _mapping("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES") else "other"
