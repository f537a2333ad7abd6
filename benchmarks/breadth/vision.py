"""Networks of torchvision and timm on small images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.breadth.architecture import Architecture, Sample

SIDE = 96
BATCH = {"x": {0: "batch"}}
# by the side of their image where it is another one
TORCHVISION = {
    "alexnet": 96, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64,
    "googlenet": 64, "inception_v3": 96, "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64,
    "mobilenet_v3_large": 64, "regnet_x_400mf": 64, "regnet_y_400mf": 64, "resnet18": 64, "resnet50": 64,
    "resnext50_32x4d": 64, "wide_resnet50_2": 64, "shufflenet_v2_x0_5": 64, "shufflenet_v2_x1_0": 64,
    "squeezenet1_0": 64, "squeezenet1_1": 64, "swin_t": 64, "swin_v2_t": 64, "vgg11": 64, "vgg11_bn": 64,
    "fcn_resnet50": 64, "deeplabv3_mobilenet_v3_large": 64, "lraspp_mobilenet_v3_large": 64,
}  # fmt: skip
SIZED = {"vit_b_32": 224, "maxvit_t": 224}  # whose images have one size
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "swin3d_t")
TIMM = {
    "botnet26t_256": 256, "halonet26t": 128, "lambda_resnet26t": 128, "sehalonet33ts": 128, "eca_botnext26ts_256": 256,
    "repvgg_a0": 64, "gernet_s": 64, "mobileone_s0": 64, "test_byobnet": 64, "cait_xxs24_224": 224, "coat_tiny": 224,
    "coat_lite_tiny": 64, "convit_tiny": 224, "convmixer_768_32": 56, "convnext_atto": 64, "convnextv2_atto": 64,
    "test_convnext2": 64, "crossvit_tiny_240": 240, "cs3darknet_focus_s": 64, "cspresnet50": 64, "darknet17": 64,
    "davit_tiny": 64, "deit_tiny_distilled_patch16_224": 224, "densenetblur121d": 64, "dla46_c": 64,
    "dla60_res2net": 64, "dpn48b": 64, "edgenext_xx_small": 64, "efficientformer_l1": 224,
    "efficientformerv2_s0": 224, "mixnet_s": 64, "tinynet_e": 64, "semnasnet_050": 64, "mobilenetv2_035": 64,
    "fbnetc_100": 64, "spnasnet_100": 64, "efficientnet_lite0": 64, "efficientvit_b0": 64, "efficientvit_m0": 224,
    "eva02_tiny_patch14_224": 224, "vit_small_patch16_rope_224": 224, "fasternet_t0": 64, "fastvit_t8": 64,
    "focalnet_tiny_srf": 64, "gcvit_xxtiny": 224, "ghostnet_050": 64, "ghostnetv3_050": 64, "hardcorenas_a": 64,
    "hgnet_tiny": 64, "hgnetv2_b0": 64, "hiera_tiny_224": 224, "sam2_hiera_tiny": 224, "hrnet_w18_small": 64,
    "inception_next_atto": 64, "inception_v4": 96, "lcnet_035": 64, "levit_128s": 224, "levit_conv_128s": 224,
    "mambaout_femto": 64, "test_maxvit": 160, "test_coatnet": 160, "caformer_s18": 64, "poolformer_s12": 64,
    "convformer_s18": 64, "gmlp_ti16_224": 224, "mixer_s32_224": 224, "resmlp_12_224": 224,
    "mobilenetv3_small_050": 64, "mobilenetv4_conv_small_035": 64, "mobilenetv4_hybrid_medium": 64,
    "mobilevit_xxs": 64, "mobilevitv2_050": 64, "mvitv2_tiny": 64, "nest_tiny": 224, "nextvit_small": 64,
    "test_nfnet": 64, "nf_regnet_b0": 64, "eca_nfnet_l0": 64, "pit_ti_224": 224, "pvt_v2_b0": 64, "rdnet_tiny": 64,
    "regnetx_002": 64, "regnety_002": 64, "regnetz_005": 64, "repghostnet_050": 64, "repvit_m0_9": 64,
    "res2net50_14w_8s": 64, "resnest14d": 64, "test_resnet": 64, "resnetblur18": 64, "seresnet18": 64,
    "ecaresnet26t": 64, "resnetv2_50x1_bit": 64, "resnetv2_18": 64, "rexnet_100": 64, "selecsls42": 64,
    "legacy_seresnet18": 64, "sequencer2d_s": 224, "shvit_s1": 64, "skresnet18": 64, "starnet_s050": 64,
    "swiftformer_xs": 64, "swin_s3_tiny_224": 224, "swinv2_cr_tiny_ns_224": 224, "tiny_vit_5m_224": 224,
    "tnt_s_legacy_patch16_224": 224, "tresnet_m": 64, "twins_pcpvt_small": 224, "twins_svt_small": 224,
    "visformer_tiny": 224, "test_vit": 160, "test_vit3": 160, "test_vit4": 160, "flexivit_small": 240,
    "vit_tiny_r_s16_p8_224": 224, "vit_relpos_small_patch16_224": 224, "vitamin_small_224": 224, "volo_d1_224": 224,
    "ese_vovnet19b_slim_dw": 64, "xception41": 64, "xcit_nano_12_p16_224": 224, "efficientvim_m1": 64,
}  # fmt: skip


class Named(torch.nn.Module):
    """A network that returns a dictionary, as a tuple in its order."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.module(x).values())


class Boxes(torch.nn.Module):
    """A detector of one image of a given size: boxes, scores, labels."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.module([x])[0].values())


def _torchvision(name: str, shape: tuple[int, ...], **options: Any) -> Sample:
    import torchvision

    module = torchvision.models.get_model(name, weights=None, **options)
    if name in ("googlenet", "inception_v3"):
        module.aux_logits = False
    if name.startswith(("fcn", "deeplab", "lraspp")):
        module = Named(module)
    return Sample(module, {"x": torch.rand(shape)}, BATCH)


def _detector(name: str, side: int, **options: Any) -> Sample:
    import torchvision

    module = torchvision.models.get_model(
        name, weights=None, weights_backbone=None, num_classes=5, min_size=side, max_size=side, **options
    )
    return Sample(Boxes(module), {"x": torch.rand(3, side, side)})


def _timm(name: str, side: int) -> Sample:
    import timm

    return Sample(timm.create_model(name, pretrained=False), {"x": torch.rand(1, 3, side, side)}, BATCH)


def _raft() -> Sample:
    import torchvision

    images = {name: torch.rand(1, 3, 128, 128) for name in ("first", "second")}
    return Sample(torchvision.models.optical_flow.raft_small(weights=None), images)


def architectures() -> Iterator[Architecture]:
    """All of them."""
    heads = {"fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"}
    for name, side in (TORCHVISION | SIZED).items():
        options: dict[str, Any] = {"weights_backbone": None} if name in heads else {}
        if name in ("googlenet", "inception_v3"):
            options["init_weights"] = False
        yield Architecture(f"torchvision/{name}", partial(_torchvision, name, (1, 3, side, side), **options))
    for name in VIDEO:
        yield Architecture(f"torchvision/{name}", partial(_torchvision, name, (1, 3, 16, 64, 64)))
    for name in ("ssdlite320_mobilenet_v3_large", "fcos_resnet50_fpn", "fasterrcnn_mobilenet_v3_large_320_fpn"):
        yield Architecture(f"torchvision/{name}", partial(_detector, name, 128))
    yield Architecture("torchvision/raft_small", _raft)
    for name, side in TIMM.items():
        yield Architecture(f"timm/{name}", partial(_timm, name, side))
