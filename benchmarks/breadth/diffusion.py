"""Networks of diffusers with tiny configs: UNets, transformers, autoencoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.breadth.architecture import Architecture, Sample
from benchmarks.breadth.language import Called

NORM: Mapping[str, Any] = {"norm_num_groups": 8}
UNET = {**NORM, "block_out_channels": (16, 32), "layers_per_block": 1, "sample_size": 16}


def _called(kind: str, options: Mapping[str, Any], inputs: Mapping[str, Tensor]) -> Sample:
    import diffusers

    module = getattr(diffusers, kind)(**options)
    axes = {name: {0: "batch"} for name, tensor in inputs.items() if tensor.ndim > 1}
    return Sample(Called(module, tuple(inputs), {"return_dict": True}), inputs, axes)


def _latent(channels: int = 4, side: int = 16) -> Tensor:
    return torch.randn(1, channels, side, side)


def architectures() -> Iterator[Architecture]:
    """All of them."""
    step = torch.tensor([7])
    text = torch.randn(1, 8, 32)
    nets: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Tensor]]] = {
        "UNet2DModel": (
            {**UNET, "in_channels": 3, "out_channels": 3, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
             "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "attention_head_dim": 8},
            {"sample": _latent(3), "timestep": step},
        ),
        "UNet2DConditionModel": (
            {**UNET, "cross_attention_dim": 32, "attention_head_dim": 2,
             "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
             "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")},
            {"sample": _latent(), "timestep": step, "encoder_hidden_states": text},
        ),
        "DiTTransformer2DModel": (
            {"num_attention_heads": 4, "attention_head_dim": 16, "in_channels": 4, "out_channels": 8, "num_layers": 2,
             "norm_num_groups": 8, "sample_size": 16, "num_embeds_ada_norm": 10},
            {"hidden_states": _latent(), "timestep": step, "class_labels": torch.tensor([3])},
        ),
        "SD3Transformer2DModel": (
            {"sample_size": 16, "patch_size": 2, "in_channels": 4, "num_layers": 2, "attention_head_dim": 16,
             "num_attention_heads": 4, "joint_attention_dim": 32, "caption_projection_dim": 64,
             "pooled_projection_dim": 24, "out_channels": 4, "pos_embed_max_size": 24},
            {"hidden_states": _latent(), "encoder_hidden_states": text, "pooled_projections": torch.randn(1, 24),
             "timestep": step},
        ),
        "AutoencoderKL": (
            {**NORM, "block_out_channels": (16, 32), "down_block_types": ("DownEncoderBlock2D",) * 2,
             "up_block_types": ("UpDecoderBlock2D",) * 2, "latent_channels": 4},
            {"sample": _latent(3, 32)},
        ),
        "VQModel": (
            {**NORM, "block_out_channels": (16, 32), "down_block_types": ("DownEncoderBlock2D",) * 2,
             "up_block_types": ("UpDecoderBlock2D",) * 2, "latent_channels": 3, "num_vq_embeddings": 32},
            {"sample": _latent(3, 32)},
        ),
        "UNet1DModel": (
            {"block_out_channels": (16, 32), "sample_size": 32, "in_channels": 4, "out_channels": 4,
             "time_embedding_type": "positional", "use_timestep_embedding": True, "norm_num_groups": 8,
             "down_block_types": ("DownResnetBlock1D",) * 2, "up_block_types": ("UpResnetBlock1D",),
             "mid_block_type": "MidResTemporalBlock1D", "out_block_type": "OutConv1DBlock", "act_fn": "swish",
             "flip_sin_to_cos": False, "freq_shift": 1.0, "layers_per_block": 1},
            {"sample": torch.randn(1, 4, 32), "timestep": step},
        ),
    }  # fmt: skip
    for kind, (options, inputs) in nets.items():
        yield Architecture(f"diffusion/{kind}", partial(_called, kind, options, inputs))
