"""Networks of transformers with tiny configs: encoders, decoders with and without a cache, images, sound, both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.breadth.architecture import Architecture, Axes, Sample

LENGTH, PAST, LAYERS = 16, 24, 2
# What makes a config tiny, by the names that configs use; each takes those that it has.
TINY: Mapping[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "dim", "emb_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), LAYERS),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers", "num_hidden_groups"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 128),
    **dict.fromkeys(("n_inner", "moe_intermediate_size", "shared_expert_intermediate_size"), 128),
    "word_embed_proj_dim": 64,
    "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "vocab_size": 512, "max_position_embeddings": 128,
    "n_positions": 128, "max_target_positions": 64, "max_source_positions": 64, "num_local_experts": 4,
    "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "num_experts_per_token": 2, "rotary_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "sliding_window": 64,
    "image_size": 64, "patch_size": 16, "attention_dropout": 0.0, "conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}  # fmt: skip

ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "bert": {}, "roberta": {}, "albert": {}, "distilbert": {}, "electra": {}, "deberta": {"pos_att_type": ["c2p"]},
    "deberta-v2": {"pos_att_type": ["p2c", "c2p"], "relative_attention": True}, "mpnet": {}, "camembert": {},
    "xlm-roberta": {}, "xlm": {}, "fnet": {}, "squeezebert": {}, "mobilebert": {
        "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}, "nystromformer": {}, "ernie": {},
    "rembert": {"input_embedding_size": 64, "output_embedding_size": 64}, "convbert": {}, "roformer": {}, "esm": {
        "position_embedding_type": "rotary", "mask_token_id": 3}, "ibert": {}, "megatron-bert": {}, "data2vec-text": {},
    "big_bird": {"attention_type": "original_full"}, "modernbert": {"local_attention": 8}, "nomic_bert": {},
    "layoutlm": {}, "lilt": {}, "canine": {}, "splinter": {}, "longformer": {"attention_window": 8},
    "flaubert": {}, "eurobert": {}, "tapas": {}, "roberta-prelayernorm": {}, "mra": {}, "yoso": {}, "reformer": {},
}  # fmt: skip
DECODERS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {}, "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8}, "gpt_neox": {},
    "gptj": {}, "gpt_bigcode": {}, "opt": {}, "llama": {}, "mistral": {}, "mixtral": {}, "qwen2": {}, "qwen3": {},
    "qwen2_moe": {}, "gemma": {}, "gemma2": {}, "gemma3_text": {}, "phi": {},
    "phi3": {"original_max_position_embeddings": 128},
    "falcon": {}, "bloom": {}, "mpt": {}, "codegen": {}, "stablelm": {}, "starcoder2": {}, "olmo": {}, "olmo2": {},
    "cohere": {}, "granite": {}, "persimmon": {}, "nemotron": {}, "biogpt": {}, "ctrl": {"dff": 128}, "openai-gpt": {},
    "xglm": {"attention_heads": 4}, "smollm3": {}, "glm": {}, "helium": {}, "olmoe": {}, "granitemoe": {},
    "phimoe": {}, "mamba": {"state_size": 8}, "gpt_oss": {}, "ernie4_5": {}, "exaone4": {}, "deepseek_v3": {
        "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
        "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 8}, "rwkv": {},
    "recurrent_gemma": {}, "lfm2": {}, "jamba": {}, "seed_oss": {}, "minimax": {}, "arcee": {}, "diffllama": {},
}  # fmt: skip
CACHED = (
    "gpt2", "gpt_neox", "gptj", "opt", "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "phi",
    "phi3", "falcon", "stablelm", "starcoder2", "olmo", "cohere", "granite", "smollm3", "glm", "gpt_oss",
)  # fmt: skip
TALKING = (*CACHED, "bloom", "granitemoe", "olmoe", "phimoe", "qwen2_moe")
TRANSLATORS: Mapping[str, Mapping[str, Any]] = {
    "t5": {}, "mt5": {}, "bart": {}, "mbart": {}, "pegasus": {}, "marian": {}, "blenderbot": {}, "m2m_100": {},
    "switch_transformers": {}, "led": {"attention_window": 16}, "umt5": {}, "plbart": {}, "longt5": {
        "local_radius": 8}, "prophetnet": {"num_encoder_layers": 2, "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4}, "fsmt": {"src_vocab_size": 512, "tgt_vocab_size": 512},
}  # fmt: skip
STAGES: Mapping[str, Any] = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}
WINDOWS: Mapping[str, Any] = {
    "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4,
}  # fmt: skip
IMAGES: Mapping[str, Mapping[str, Any]] = {
    "vit": {}, "deit": {}, "beit": {}, "dinov2": {}, "vit_msn": {}, "ijepa": {}, "data2vec-vision": {},
    "swin": WINDOWS, "swinv2": WINDOWS, "swin2sr": {**WINDOWS, "num_heads": [2, 2], "patch_size": 1},
    "convnext": STAGES, "poolformer": STAGES, "resnet": {**STAGES, "embedding_size": 16},
    "regnet": {**STAGES, "embedding_size": 16, "groups_width": 8},
    "segformer": {**STAGES, "num_attention_heads": [1, 2, 3, 4]},
    "pvt": {**STAGES, "num_attention_heads": [1, 2, 3, 4]},
    "bit": {"hidden_sizes": [32, 64, 64, 64], "depths": [1, 1, 1, 1], "embedding_size": 32, "num_groups": 8},
    "mobilevit": {"hidden_sizes": [32, 48, 64], "neck_hidden_sizes": [16, 16, 24, 32, 48, 64, 96]},
    "cvt": {"embed_dim": [16, 32, 64], "num_heads": [1, 2, 4], "depth": [1, 1, 2]},
    "levit": {
        "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [8, 8, 8],
    },
    "focalnet": {"embed_dim": 16, "depths": [1, 1, 1, 1]},
    "hiera": {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 4], "image_size": [64, 64]},
    "swiftformer": {"embed_dims": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}, "efficientnet": {"hidden_dim": 2560},
    "dpt": {"backbone_out_indices": [0, 1], "is_hybrid": False}, "yolos": {"image_size": [64, 64]},
    "mobilenet_v1": {}, "mobilenet_v2": {}, "superpoint": {},
}  # fmt: skip
SOUND: Mapping[str, Mapping[str, Any]] = {
    "wav2vec2": {}, "hubert": {}, "wavlm": {}, "sew": {"squeeze_factor": 2, "conv_dim": (32,) * 13}, "unispeech": {},
    "data2vec-audio": {"conv_pos_kernel_size": 7}, "unispeech-sat": {}, "wav2vec2-conformer": {},
}  # fmt: skip


class Called(torch.nn.Module):
    """A network called by names of inputs; gives its tensors that are no cache.

    Args:
        options: arguments that are no tensors.
    """

    def __init__(self, module: Any, names: tuple[str, ...], options: Mapping[str, Any]) -> None:
        super().__init__()
        self.module, self.names, self.options = module, names, dict(options)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        found = self.module(**dict(zip(self.names, tensors)), **self.options)
        return tuple(value for value in found.values() if isinstance(value, Tensor))


class Step(torch.nn.Module):
    """A step of decoding: tokens, a mask, keys and values so far; logits, keys and values afterwards."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, ids: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2])))
        found = self.module(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        held = found.past_key_values
        return (found.logits, *(tensor for layer in held.layers for tensor in (layer.keys, layer.values)))


def config(kind: str, options: Mapping[str, Any]) -> Any:
    """The tiny config of a kind of model."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    usual = made()
    derived = {*made.attribute_map, *(name for name in TINY if isinstance(getattr(made, name, None), property))}
    known = {name: value for name, value in TINY.items() if hasattr(usual, name) and name not in derived}
    return made(**{**known, **options})


def _model(kind: str, options: Mapping[str, Any], task: str = "AutoModel") -> Any:
    import transformers

    return getattr(transformers, task).from_config(
        config(kind, options), attn_implementation="eager", experts_implementation="batched_mm"
    )


def _words(batch: int = 1, length: int = LENGTH) -> Tensor:
    return torch.randint(3, 500, (batch, length))


def _called(module: Any, inputs: Mapping[str, Tensor], axes: Axes, **options: Any) -> Sample:
    return Sample(Called(module, tuple(inputs), {"return_dict": True, **options}), inputs, axes)


def _encoder(kind: str, options: Mapping[str, Any]) -> Sample:
    inputs = {"input_ids": _words(), "attention_mask": torch.ones(1, LENGTH, dtype=torch.int64)}
    inputs["attention_mask"][0, -3:] = 0
    axes = {name: {0: "batch", 1: "length"} for name in inputs}
    return _called(_model(kind, options), inputs, axes)


def _decoder(kind: str, options: Mapping[str, Any]) -> Sample:
    inputs = {"input_ids": _words()}
    return _called(
        _model(kind, options, "AutoModelForCausalLM"), inputs, {"input_ids": {0: "batch", 1: "length"}}, use_cache=False
    )


def _step(kind: str, options: Mapping[str, Any]) -> Sample:
    sample = _behind_others(kind, options, batch=1, new=1)
    return replace(sample, axes={name: named for name, named in sample.axes.items() if name != "ids"})


def _turn(kind: str, options: Mapping[str, Any]) -> Sample:
    """Any number of new tokens of any number of sequences."""
    sample = _behind_others(kind, options, batch=2, new=5)
    return replace(sample, axes={name: {0: "batch", **named} for name, named in sample.axes.items()})


def _behind_others(kind: str, options: Mapping[str, Any], batch: int, new: int) -> Sample:
    model = _model(kind, options, "AutoModelForCausalLM").eval()
    held = model(_words(batch, PAST), use_cache=True).past_key_values
    past = {
        f"past.{n}.{part}": getattr(layer, part).detach()
        for n, layer in enumerate(held.layers)
        for part in ("keys", "values")
    }
    mask = torch.ones(batch, PAST + new, dtype=torch.int64)
    axes = {"ids": {1: "new"}, "mask": {1: "total"}, **{name: {2: "past"} for name in past}}
    return Sample(Step(model), {"ids": _words(batch, new), "mask": mask, **past}, axes)


def _translator(kind: str, options: Mapping[str, Any]) -> Sample:
    inputs = {"input_ids": _words(), "decoder_input_ids": _words(1, 8)}
    axes = {"input_ids": {1: "source"}, "decoder_input_ids": {1: "target"}}
    return _called(_model(kind, options), inputs, axes, use_cache=False)


def _image(kind: str, options: Mapping[str, Any]) -> Sample:
    made = config(kind, options)
    side = made.image_size if isinstance(getattr(made, "image_size", None), int) else 64
    channels = getattr(made, "num_channels", 3)
    inputs = {"pixel_values": torch.rand(1, channels, side, side)}
    return _called(_model(kind, options), inputs, {"pixel_values": {0: "batch"}})


def _sound(kind: str, options: Mapping[str, Any]) -> Sample:
    return _called(_model(kind, options), {"input_values": torch.randn(1, 4000)}, {"input_values": {1: "time"}})


def _whisper() -> Sample:
    inputs = {"input_features": torch.randn(1, 80, 128), "decoder_input_ids": _words(1, 8)}
    axes = {"decoder_input_ids": {1: "target"}}
    return _called(_model("whisper", {}), inputs, axes, use_cache=False)


def _detr(kind: str) -> Sample:
    from transformers import CONFIG_MAPPING, AutoModelForObjectDetection

    backbone = CONFIG_MAPPING["resnet"](
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], embedding_size=16, out_features=["stage4"]
    )
    if kind == "deformable_detr":
        backbone.out_features = ["stage2", "stage3", "stage4"]
    made = CONFIG_MAPPING[kind](
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=20, backbone_config=backbone, use_timm_backbone=False,
        use_pretrained_backbone=False, backbone=None,
    )  # fmt: skip
    made._attn_implementation = "eager"
    return _called(AutoModelForObjectDetection.from_config(made), {"pixel_values": torch.rand(1, 3, 96, 96)}, {})


def _pair(kind: str) -> Sample:
    """A text and an image model side by side."""
    from transformers import CONFIG_MAPPING, AutoModel

    text = {name: TINY[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")}
    text |= {"num_attention_heads": 4, "max_position_embeddings": 64, "projection_dim": 32, "eos_token_id": 2}
    image = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
    image |= {"image_size": 64, "patch_size": 16, "projection_dim": 32}
    made = CONFIG_MAPPING[kind](text_config=text, vision_config=image, projection_dim=32)
    made._attn_implementation = "eager"
    inputs = {"input_ids": _words(), "pixel_values": torch.rand(1, 3, 64, 64)}
    return _called(AutoModel.from_config(made), inputs, {"input_ids": {0: "texts"}, "pixel_values": {0: "images"}})


def architectures() -> Iterator[Architecture]:
    """All of them."""
    kinds: tuple[tuple[str, Mapping[str, Mapping[str, Any]], Callable[..., Sample]], ...] = (
        ("encoder", ENCODERS, _encoder),
        ("decoder", DECODERS, _decoder),
        ("step", {kind: DECODERS[kind] for kind in CACHED}, _step),
        ("translator", TRANSLATORS, _translator),
        ("image", IMAGES, _image),
        ("sound", SOUND, _sound),
    )
    for family, listed, make in kinds:
        for kind, options in listed.items():
            yield Architecture(f"{family}/{kind}", partial(make, kind, options))
    for kind in TALKING:
        for label, exporter in (("exported", "torch.export"), ("traced", "TorchScript")):
            yield Architecture(f"turn/{kind}-{label}", partial(_turn, kind, DECODERS[kind]), exporter)
    yield Architecture("sound/whisper", _whisper)
    for kind in ("detr", "conditional_detr", "deformable_detr"):
        yield Architecture(f"image/{kind}", partial(_detr, kind))
    for kind in ("clip", "siglip", "chinese_clip"):
        yield Architecture(f"pair/{kind}", partial(_pair, kind))
