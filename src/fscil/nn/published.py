"""Encoders by plain names whose weights others publish: what each is, what it costs, and under which licence.

Weights come from the model hub, through timm, which also says how images are shown to them. A model file remembers the
plain name: which network a name means must never change.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A network on the model hub; the tests hold these facts against timm's own."""

    timm: str  # network and tag of its weights, as timm calls them
    megabytes: int  # of the weights
    pixels: int
    dim: int
    licence: str


HUB = {
    "mobilenetv4_small": Published("mobilenetv4_conv_small.e2400_r224_in1k", 10, 224, 1280, "apache-2.0"),
    "resnet18": Published("resnet18.tv_in1k", 45, 224, 512, "bsd-3-clause"),  # the weights of the published results
    "convnext_tiny": Published("convnext_tiny.fb_in22k", 111, 224, 768, "apache-2.0"),
    "dinov2_small": Published("vit_small_patch14_dinov2.lvd142m", 88, 518, 384, "apache-2.0"),
    "dinov2_base": Published("vit_base_patch14_dinov2.lvd142m", 346, 518, 768, "apache-2.0"),
    "clip_base": Published("vit_base_patch16_clip_224.openai", 343, 224, 768, "apache-2.0"),
    "siglip2_base": Published("vit_base_patch16_siglip_224.v2_webli", 372, 224, 768, "apache-2.0"),
}
