"""Makes a model's inputs: token ids with a padding mask, images, video, sound, or what a single model type wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.coverage.sizes import BATCH, LENGTH, TARGET_LENGTH

Inputs = dict[str, Any]

WAVE, PADDED_FROM = 800, 600
"""Samples of a sound, and where the padding of its last row starts."""
FRAMES = 8


@dataclass(frozen=True)
class Request:
    """What is known of a model when its inputs are made."""

    model_type: str
    family: str
    main_input: str
    config: Any
    parameters: frozenset[str]
    """Argument names of ``forward``."""
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(BATCH, *shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(BATCH, *shape, generator=self.generator)

    def ids(self, length: int) -> Tensor:
        """Token ids [B, length] that avoid the special ones."""
        return torch.randint(10, 99, (BATCH, length), generator=self.generator)


Maker = Callable[[Request], Inputs]


def make_inputs(request: Request) -> Inputs:
    """Keyword arguments of one forward, without a cache; the same each time."""
    maker = _SPECIAL.get(request.model_type) or _BY_FAMILY.get(request.family, text)
    inputs = maker(request)
    if "use_cache" in request.parameters:
        inputs["use_cache"] = False
    elif "use_cache" in vars(request.config):
        request.config.use_cache = False
    return inputs


def text(request: Request) -> Inputs:
    """Ids [B, S] with three padded positions at the end of the last row, and a decoder's ids."""
    inputs: Inputs = {"input_ids": request.ids(LENGTH)}
    if "attention_mask" in request.parameters:
        mask = _all_kept(LENGTH)
        mask[-1, -3:] = 0
        inputs["attention_mask"] = mask
    if "decoder_input_ids" in request.parameters and getattr(request.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = request.ids(TARGET_LENGTH)
    return inputs


def multimodal(request: Request) -> Inputs:
    """Text, and an image for the types that can't do without one."""
    inputs = text(request)
    if request.model_type in _WANTS_IMAGE:
        side = getattr(getattr(request.config, "vision_config", request.config), "image_size", 32)
        inputs["pixel_values"] = request.normal(3, side, side)
    return inputs


def vision(request: Request) -> Inputs:
    """Pixels [B, C, H, W], or [B, T, C, H, W] for video."""
    config = _image_config(request.config)
    size = getattr(config, "image_size", 64)
    shape = [getattr(config, "num_channels", 3), *((size, size) if isinstance(size, int) else size[:2])]
    tubes = hasattr(config, "num_frames") and hasattr(config, "tubelet_size")
    if tubes or request.model_type == "timesformer":
        shape.insert(0, config.num_frames)
    return {"pixel_values": request.normal(*shape)}


def audio(request: Request) -> Inputs:
    """A waveform [B, 800] or features [B, mels, frames], and a decoder's ids."""
    inputs: Inputs = _waveform(request) if request.main_input == "input_values" else _features(request)
    if "decoder_input_ids" in request.parameters:
        inputs["decoder_input_ids"] = request.ids(TARGET_LENGTH)
    return inputs


def _waveform(request: Request) -> Inputs:
    config = request.config
    if hasattr(config, "frequency_stride"):  # a spectrogram in place of the wave
        return {"input_values": request.normal(config.max_length, config.num_mel_bins)}
    inputs: Inputs = {"input_values": request.normal(WAVE)}
    if "attention_mask" in request.parameters and "conv_dim" in config.to_dict():
        mask = _all_kept(WAVE)
        mask[-1, PADDED_FROM:] = 0
        inputs["attention_mask"] = mask
    return inputs


def _features(request: Request) -> Inputs:
    config = request.config
    frames = 2 * getattr(config, "max_source_positions", 32)
    return {request.main_input: request.normal(getattr(config, "num_mel_bins", 16), frames)}


def _image_config(config: Any) -> Any:
    """The part of a configuration that says how large images are."""
    for name in ("backbone_config", "vision_config"):
        if not hasattr(config, "image_size") and getattr(config, name, None) is not None:
            config = getattr(config, name)
    return config


def _all_kept(length: int) -> Tensor:
    return torch.ones(BATCH, length, dtype=torch.long)


# -- single model types ------------------------------------------------------------------------------------------------


def _boxes(request: Request) -> Inputs:
    box = torch.tensor([1, 2, 10, 20])
    return {**text(request), "bbox": box.expand(BATCH, LENGTH, 4).contiguous()}


def _corner_boxes(request: Request) -> Inputs:
    return {**text(request), "bbox": request.uniform(LENGTH, 8)}


def _latent(request: Request) -> Inputs:
    return {"inputs": request.normal(LENGTH, request.config.d_model), "attention_mask": _all_kept(LENGTH)}


def _objects(request: Request) -> Inputs:
    return {**text(request), "visual_feats": request.normal(6, 32), "visual_pos": request.uniform(6, 4)}


def _visual_tokens(request: Request) -> Inputs:
    embeds = request.normal(6, request.config.visual_embedding_dim)
    return {**text(request), "visual_embeds": embeds, "visual_attention_mask": torch.ones(BATCH, 6)}


def _trajectory(request: Request) -> Inputs:
    return {
        "states": request.normal(FRAMES, request.config.state_dim),
        "actions": request.normal(FRAMES, request.config.act_dim),
        "rewards": request.normal(FRAMES, 1),
        "returns_to_go": request.normal(FRAMES, 1),
        "timesteps": torch.arange(FRAMES).expand(BATCH, FRAMES).contiguous(),
        "attention_mask": _all_kept(FRAMES),
    }


def _series(request: Request) -> Inputs:
    return {"past_values": request.normal(request.config.context_length, request.config.num_input_channels)}


def _series_with_lags(request: Request) -> Inputs:
    past, future = request.config.context_length + max(request.config.lags_sequence), request.config.prediction_length
    return {
        "past_values": request.normal(past),
        "past_time_features": request.normal(past, 1),
        "past_observed_mask": torch.ones(BATCH, past),
        "future_values": request.normal(future),
        "future_time_features": request.normal(future, 1),
    }


def _speech_frames(request: Request) -> Inputs:
    return {
        "input_features": request.normal(40, request.config.input_feat_per_channel),
        "attention_mask": _all_kept(40),
        "decoder_input_ids": request.ids(TARGET_LENGTH),
    }


def _projected_frames(request: Request) -> Inputs:
    features = request.normal(20, request.config.feature_projection_input_dim)
    return {"input_features": features, "attention_mask": _all_kept(20)}


_WANTS_IMAGE = frozenset(
    "aimv2 altclip blip bridgetower chinese_clip clip clipseg flava groupvit metaclip_2 owlv2 owlvit siglip "
    "vilt".split()
)

_BY_FAMILY: dict[str, Maker] = {"vision": vision, "audio": audio, "multimodal": multimodal}

_SPECIAL: dict[str, Maker] = {
    "bros": _corner_boxes,
    "decision_transformer": _trajectory,
    "layoutlm": _boxes,
    "layoutlmv3": _boxes,
    "lilt": _boxes,
    "lxmert": _objects,
    "patchtst": _series,
    "perceiver": _latent,
    "speech_to_text": _speech_frames,
    "time_series_transformer": _series_with_lags,
    "visual_bert": _visual_tokens,
    "wav2vec2-bert": _projected_frames,
}
