"""Encoders by name: `stages`, `pool`, `dim`, `pixels`; images (n, 3, p, p) -> features (n, dim) in float32."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from fscil.errors import FscilError, UnknownEncoder
from fscil.nn import compute, scratch
from fscil.nn.published import HUB
from fscil.nn.weights import encoder_of_run, fill, load_weights, read_weights
from fscil.settings.names import suggestion

AS_PUBLISHED = MappingProxyType({"zero_init_last": False})  # timm alone starts the last norm of a block at zero
RESNET18 = HUB["resnet18"].timm
PIXELS = 4_000_000  # of images that are looked at together where nothing is learned: 79 of 224 pixels


class Encoder(nn.Module):
    """stages -> pool. Convolutions run in `precision`; features are float32, so that relations never lose digits.

    They run where the weights are; features come back to where the images were, in training the same device.
    """

    def __init__(self, stages: nn.Sequential, dim: int, pixels: int, pool: nn.Module | None = None):
        super().__init__()
        self.stages = stages
        self.pool = pool or nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.dim, self.pixels = dim, pixels
        self.precision = torch.float32
        self._macs: dict[tuple[int, int], int] = {}

    def forward(self, images: Tensor) -> Tensor:
        if compute.is_counting():
            compute.record(self, images, self.macs(images.shape[-1]))
        with self._arithmetic() as device:
            parts = [self._pooled(self.stages(part.to(device)), images.device) for part in self._portions(images)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _portions(self, images: Tensor) -> tuple[Tensor, ...]:
        """Images (n, 3, p, p) as they are or, where nothing is learned from them, few enough large ones at a time.

        What a net makes of 500 images of 224 pixels in its first layers takes more memory than anything else.
        """
        if self.training or torch.is_grad_enabled() or images.dim() != 4:
            return (images,)
        portions: tuple[Tensor, ...] = images.split(portion_of(*images.shape[-2:]))
        return portions

    def mixed(self, images: Tensor, stage: int, mix: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Features (n, dim) of images, and of what `mix` makes of their activations behind the first `stage` stages."""
        whole = self.macs(images.shape[-1])
        compute.record(self, images, 2 * whole - self.macs(images.shape[-1], stage))
        with self._arithmetic() as device:
            activations = self.stages[:stage](images.to(device))
            plain, mixture = (self.stages[stage:](h) for h in (activations, mix(activations)))
        return self._pooled(plain, images.device), self._pooled(mixture, images.device)

    def _pooled(self, activations: Tensor, device: torch.device) -> Tensor:
        features: Tensor = self.pool(activations.float())
        return features.to(device)

    @contextmanager
    def _arithmetic(self) -> Iterator[torch.device]:
        """Where and how exactly the weights compute."""
        device = next(self.parameters()).device
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            yield device

    @property
    def stems(self) -> list[scratch.WhiteningStem]:
        """The parts that are fitted to images before training."""
        return [module for module in self.modules() if isinstance(module, scratch.WhiteningStem)]

    def macs(self, pixels: int, stages: int = 0) -> int:
        """Multiply-adds of one forward pass of one image, through the first `stages` only or (0) through everything."""
        if (pixels, stages) not in self._macs:
            part = self.stages[:stages] if stages else nn.Sequential(self.stages, self.pool)
            try:
                self._macs[pixels, stages] = compute.macs_per_image(part, pixels)
            except (RuntimeError, AssertionError, ValueError) as problem:
                reason = str(problem).partition("\n")[0]
                raise FscilError(
                    f"the encoder cannot take images of {pixels} pixels ({reason}); "
                    "change the setting that asks for them, such as --pixels"
                ) from problem
        return self._macs[pixels, stages]

    @property
    def last_block(self) -> nn.Module:
        """The last residual block, or the last stage of an encoder that has none."""
        block: nn.Module = self.stages[-1]
        while isinstance(block, nn.Sequential) and list(block[-1].children()):
            block = block[-1]
        return block


def portion_of(height: int, width: int) -> int:
    """Images of this size that an encoder looks at together where nothing is learned from them."""
    return max(1, PIXELS // (height * width))


def build(name: str, pixels: int, weights: str | None = None) -> Encoder:
    """The encoder `name` for images of `pixels`; `weights` is a local file, a run folder or "pretrained".

    Pretrained weights come from timm's model hub, those of EfficientNet-Lite from an installed package.
    """
    if pixels < 8:
        raise FscilError(f"encoders need images of at least 8 pixels, got {pixels}; set --pixels")
    encoder = unsized(name, pixels, weights)
    encoder.macs(pixels)
    return encoder


def unsized(name: str, pixels: int, weights: str | None = None) -> Encoder:
    """The encoder without a test whether it can take images of this size, which imports a compiler: over a second."""
    if weights is not None and Path(weights).is_dir():
        encoder = _of_name(name, pixels, None)
        fill(encoder, encoder_of_run(Path(weights)), Path(weights))
        return encoder
    return _of_name(name, pixels, weights)


def _of_name(name: str, pixels: int, weights: str | None) -> Encoder:
    if name.startswith("timm:"):
        return _timm(name.removeprefix("timm:"), pixels, weights)
    if name in BUILDERS:
        return BUILDERS[name](pixels, weights)
    if name in HUB:
        return _timm(HUB[name].timm, pixels, weights)
    raise UnknownEncoder(f"unknown encoder {name!r}: {suggestion(name, [*BUILDERS, *HUB, 'timm:NAME'])}")


def _resnet18(pixels: int, weights: str | None) -> Encoder:
    """ResNet-18 with the ImageNet stem, the paper's encoder (512-d)."""
    net = _create_timm(RESNET18, weights, AS_PUBLISHED)
    stem = nn.Sequential(net.conv1, net.bn1, net.act1, net.maxpool)
    return Encoder(nn.Sequential(stem, net.layer1, net.layer2, net.layer3, net.layer4), 512, pixels)


def _resnet18_small(pixels: int, weights: str | None) -> Encoder:
    """ResNet-18 with a 3x3 stem and no max-pool, for small images (512-d)."""
    _no_weights("resnet18_small", weights)
    net = _create_timm(RESNET18, None, AS_PUBLISHED)
    stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), net.bn1, net.act1)
    return Encoder(nn.Sequential(stem, net.layer1, net.layer2, net.layer3, net.layer4), 512, pixels)


def _from_scratch(name: str, stages: Callable[[int], nn.Sequential], dim: int) -> Callable[[int, str | None], Encoder]:
    """A network for which nobody publishes weights, from the stages it has at an image size."""

    def build_scratch(pixels: int, weights: str | None) -> Encoder:
        _no_weights(name, weights)
        return Encoder(stages(pixels), dim, pixels)

    return build_scratch


def _efficientnet_lite(number: int) -> Callable[[int, str | None], Encoder]:
    """EfficientNet-Lite 0, 1 or 2 (1280-d); weights "pretrained" are those of the package registry."""

    def build_lite(pixels: int, weights: str | None) -> Encoder:
        from fscil.nn import efficientnet_lite as lite
        from fscil.nn import pretrained

        stages = lite.stages(number)
        if weights == "pretrained":
            lite.load_in_order(stages, pretrained.weights(f"efficientnet_lite{number}"))
        elif weights is not None:
            _load_lite(stages, Path(weights))
        return Encoder(stages, lite.DIM, pixels)

    return build_lite


def _lite_layout(number: int) -> Callable[[int, str | None], Encoder]:
    """EfficientNet-Lite 0, 1 or 2 without its last two stages, with the means of four quarters of the picture.

    It knows less about the things of ImageNet than the whole net, and more about where lines and colours are.
    """

    def build_layout(pixels: int, weights: str | None) -> Encoder:
        from fscil.nn import efficientnet_lite as lite

        name, least = f"efficientnet_lite{number}", lite.LAYOUT_PIXELS
        if pixels < least:
            raise FscilError(f"encoder {name}_layout needs images of at least {least} pixels, got {pixels}")
        stages = BUILDERS[name](pixels, weights).stages[: lite.LAYOUT_STAGES]
        return Encoder(stages, lite.layout_dim(number), pixels, lite.quarters(pixels))

    return build_layout


def _load_lite(stages: nn.Module, path: Path) -> None:
    """A file with the names of these stages, or with those of the published files."""
    from fscil.nn.efficientnet_lite import load_in_order

    given = read_weights(path)
    if stages.state_dict().keys() <= given.keys():
        fill(stages, given, path)
    else:
        load_in_order(stages, list(given.values()))


class _TimmPool(nn.Module):
    """The pooling of a timm model, whatever its kind (convolutional or with tokens)."""

    def __init__(self, net: Any):
        super().__init__()
        self.net = [net]  # in a list: its parameters already belong to the stage

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net[0].forward_head(x, pre_logits=True)
        return features


class _TimmFeatures(nn.Module):
    def __init__(self, net: Any):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        activations: Tensor = self.net.forward_features(x)
        return activations


def _timm(name: str, pixels: int, weights: str | None) -> Encoder:
    """Any timm model, as one stage; the name may end with the tag of its weights, as in resnet18.a1_in1k."""
    net = _create_timm(name, weights)
    if net.pretrained_cfg.get("fixed_input_size") and pixels != net.pretrained_cfg["input_size"][-1]:
        _resize(net, name, pixels)
    dim = getattr(net, "head_hidden_size", net.num_features)  # some heads widen the features before they are classified
    return Encoder(nn.Sequential(_TimmFeatures(net)), dim, pixels, _TimmPool(net))


def _create_timm(name: str, weights: str | None, start: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A model of timm, whose parts have the names of its kind."""
    import timm

    known = timm.list_models(include_tags="." in name)  # timm's own is_model takes any tag
    if name not in known:
        raise UnknownEncoder(f"timm has no model {name!r}; {suggestion(name, known)}")
    if weights == "pretrained":
        return _published(name, start)
    net = timm.create_model(name, num_classes=0, **start)
    if weights is not None:
        load_weights(net, Path(weights))
    return net


def _published(name: str, start: Mapping[str, Any]) -> Any:
    """A timm model with its published weights."""
    import timm

    from fscil.nn import hub

    config = timm.models.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise FscilError(f"nobody publishes weights of {name}; give a local file with --weights FILE.safetensors")
    file = {"file": str(hub.weights_file(config.hf_hub_id, config.hf_hub_filename or hub.FILE))}
    try:
        return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=file, num_classes=0, **start)
    except Exception as problem:
        raise FscilError(
            f"{file['file']} is damaged or made for another version of timm, which cannot read it as {name}; "
            "delete it and try again, update timm, or give a local file with --weights"
        ) from problem


def _resize(net: Any, name: str, pixels: int) -> None:
    """Fits the position embeddings of a Transformer to images of another size than it was trained with."""
    try:
        net.set_input_size(img_size=(pixels, pixels))
    except (AttributeError, AssertionError, RuntimeError, ValueError) as problem:
        own = net.pretrained_cfg["input_size"][-1]
        raise FscilError(f"{name} cannot take images of {pixels} pixels; its own size is --pixels {own}") from problem


def _no_weights(name: str, weights: str | None) -> None:
    if weights is not None:
        raise FscilError(
            f"encoder {name} has no pretrained weights; omit --weights, or take resnet18, efficientnet_lite0 "
            "or timm:NAME"
        )


BUILDERS: dict[str, Callable[[int, str | None], Encoder]] = {
    "resnet18": _resnet18,
    "resnet18_small": _resnet18_small,
    "resnet20": _from_scratch("resnet20", lambda pixels: scratch.resnet20(), 64),
    "resnet12": _from_scratch("resnet12", lambda pixels: scratch.resnet12(), 640),
    "fast": _from_scratch("fast", scratch.fast, 256),
    "fast_large": _from_scratch("fast_large", scratch.fast_large, 512),
    **{f"efficientnet_lite{number}": _efficientnet_lite(number) for number in range(3)},
    **{f"efficientnet_lite{number}_layout": _lite_layout(number) for number in range(3)},
}
