"""Encoders by name: `stages`, `pool`, `dim`, `pixels`; images (n, 3, p, p) -> features (n, dim) in float32."""

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.nn import compute


class Encoder(nn.Module):
    """stages -> pool. Convolutions run in `precision`; features are float32, so that relations never lose digits.

    They run where the weights are; features come back to where the images were.
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
            activations = self.stages(images.to(device))
        return self.pool(activations.float()).to(images.device)

    def mixed(self, images: Tensor, stage: int, mix: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Features (n, dim) of images, and of what `mix` makes of their activations behind the first `stage` stages."""
        whole = self.macs(images.shape[-1])
        compute.record(self, images, 2 * whole - self.macs(images.shape[-1], stage))
        with self._arithmetic() as device:
            activations = self.stages[:stage](images.to(device))
            plain, mixture = (self.stages[stage:](h) for h in (activations, mix(activations)))
        return self.pool(plain.float()).to(images.device), self.pool(mixture.float()).to(images.device)

    @contextmanager
    def _arithmetic(self) -> Iterator[torch.device]:
        """Where and how exactly the weights compute."""
        device = next(self.parameters()).device
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            yield device

    @property
    def stems(self) -> list["WhiteningStem"]:
        """The parts that are fitted to images before training."""
        return [module for module in self.modules() if isinstance(module, WhiteningStem)]

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


def build(name: str, pixels: int, weights: str | None = None) -> Encoder:
    """The encoder `name` for images of `pixels`; `weights` is a local file or "pretrained" (from the model hub)."""
    if pixels < 8:
        raise FscilError(f"encoders need images of at least 8 pixels, got {pixels}; set --pixels")
    encoder = unsized(name, pixels, weights)
    encoder.macs(pixels)
    return encoder


def unsized(name: str, pixels: int, weights: str | None = None) -> Encoder:
    """The encoder without a test whether it can take images of this size."""
    if name.startswith("timm:"):
        return _timm(name.removeprefix("timm:"), pixels, weights)
    if name not in BUILDERS:
        close = difflib.get_close_matches(name, BUILDERS, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise FscilError(f"unknown encoder {name!r}; {hint}known: {', '.join(BUILDERS)}, timm:NAME")
    return BUILDERS[name](pixels, weights)


def _resnet18(pixels: int, weights: str | None) -> Encoder:
    """ResNet-18 with the ImageNet stem, the paper's encoder (512-d)."""
    net = _create_timm("resnet18", weights, zero_init_last=False)
    stem = nn.Sequential(net.conv1, net.bn1, net.act1, net.maxpool)
    return Encoder(nn.Sequential(stem, net.layer1, net.layer2, net.layer3, net.layer4), 512, pixels)


def _resnet18_small(pixels: int, weights: str | None) -> Encoder:
    """ResNet-18 with a 3x3 stem and no max-pool, for small images (512-d)."""
    _no_weights("resnet18_small", weights)
    net = _create_timm("resnet18", None, zero_init_last=False)
    stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), net.bn1, net.act1)
    return Encoder(nn.Sequential(stem, net.layer1, net.layer2, net.layer3, net.layer4), 512, pixels)


class Residual(nn.Module):
    """activation(body(x) + shortcut(x)), optionally followed by a max-pool."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, activation: nn.Module, pool: nn.Module | None = None):
        super().__init__()
        self.body, self.shortcut, self.activation, self.pool = body, shortcut, activation, pool or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.activation(self.body(x) + self.shortcut(x)))


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs)]


def _shortcut(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    same = inputs == outputs and stride == 1
    return nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))


def _resnet20(pixels: int, weights: str | None) -> Encoder:
    """The 20-layer CIFAR ResNet, 16/32/64 channels (64-d)."""
    _no_weights("resnet20", weights)

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        body = [*_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs)]
        return Residual(nn.Sequential(*body), _shortcut(inputs, outputs, stride), nn.ReLU())

    stages = [nn.Sequential(*_convolution(3, 16), nn.ReLU())]
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        stages.append(nn.Sequential(block(inputs, outputs, stride), *(block(outputs, outputs, 1) for _ in range(2))))
    return Encoder(nn.Sequential(*stages), 64, pixels)


def _resnet12(pixels: int, weights: str | None) -> Encoder:
    """ResNet-12 of the few-shot literature, 64/160/320/640 channels (640-d)."""
    _no_weights("resnet12", weights)

    def block(inputs: int, outputs: int) -> nn.Module:
        act = nn.LeakyReLU(0.1)
        body = [
            *_convolution(inputs, outputs),
            act,
            *_convolution(outputs, outputs),
            act,
            *_convolution(outputs, outputs),
        ]
        return Residual(nn.Sequential(*body), _shortcut(inputs, outputs), act, nn.MaxPool2d(2))

    widths = (3, 64, 160, 320, 640)
    return Encoder(nn.Sequential(*(block(a, b) for a, b in pairwise(widths))), 640, pixels)


class WhiteningStem(nn.Module):
    """Fixed filters that decorrelate k x k patches of the training images, each with both signs: 6 k^2 channels."""

    def __init__(self, kernel: int, stride: int):
        super().__init__()
        self.stride, self.channels = stride, 6 * kernel * kernel
        patches = torch.eye(3 * kernel * kernel).view(-1, 3, kernel, kernel)
        self.register_buffer("filters", torch.cat([patches, -patches]))
        self.bias = nn.Parameter(torch.zeros(self.channels))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Takes the filters from the second moments of all patches of images (n, 3, p, p)."""
        kernel = self.filters.shape[-1]
        moments, count = torch.zeros(3 * kernel**2, 3 * kernel**2, dtype=torch.float64), 0
        for some in images.split(50):  # patches take kernel^2 times the memory of their images
            patches = nn.functional.unfold(some, kernel).transpose(1, 2).flatten(0, 1)
            moments += patches.T @ patches
            count += len(patches)
        variances, directions = torch.linalg.eigh((moments / count).float())
        white = (directions / (variances + 1e-2).sqrt()).T.reshape(-1, 3, kernel, kernel)
        self.filters.copy_(torch.cat([white, -white]))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.filters, self.bias, self.stride)


def _fast(pixels: int, weights: str | None) -> Encoder:
    """A small wide net that learns much per multiply-add on a CPU: whitened 2x2 patches, nine 3x3 convolutions of
    64/256/256 channels in three blocks, the later ones of a block with a shortcut (256-d).

    Images of 64 pixels and more enter through patches of 4x4 in steps of two.
    """
    _no_weights("fast", weights)
    stem = WhiteningStem(2, 1) if pixels < 64 else WhiteningStem(4, 2)
    stages: list[nn.Module] = [nn.Sequential(stem, nn.GELU())]
    inputs = stem.channels
    for outputs, more in ((64, 1), (256, 0), (256, 2)):
        first, norm = _identity_convolution(inputs, outputs)
        layers = [first, nn.MaxPool2d(2), norm, nn.ReLU(), *_identity_convolution(outputs, outputs), nn.ReLU()]
        for _ in range(more):
            body = nn.Sequential(*_identity_convolution(outputs, outputs), nn.ReLU())
            layers.append(Residual(body, nn.Identity(), nn.Identity()))
        stages.append(nn.Sequential(*layers))
        inputs = outputs
    return Encoder(nn.Sequential(*stages), inputs, pixels)


def _identity_convolution(inputs: int, outputs: int) -> list[nn.Module]:
    """A 3x3 convolution whose first channels start as the identity: the signal reaches the top from the first step."""
    convolution, norm = _convolution(inputs, outputs)
    convolution.reset_parameters()
    nn.init.dirac_(convolution.weight[:inputs].data)
    return [convolution, norm]


def _efficientnet_lite(number: int) -> Callable[[int, str | None], Encoder]:
    """EfficientNet-Lite 0, 1 or 2 (1280-d); weights "pretrained" are those of the package registry."""

    def build_lite(pixels: int, weights: str | None) -> Encoder:
        from fscil import pretrained
        from fscil.nn import efficientnet_lite as lite

        stages = lite.stages(number)
        if weights == "pretrained":
            lite.load_in_order(stages, pretrained.weights(f"efficientnet_lite{number}"))
        elif weights is not None:
            load_weights(stages, Path(weights))
        return Encoder(stages, lite.DIM, pixels)

    return build_lite


class _TimmPool(nn.Module):
    """The pooling of a timm model, whatever its kind (convolutional or with tokens)."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = [net]  # in a list: its parameters already belong to the stage

    def forward(self, x: Tensor) -> Tensor:
        return self.net[0].forward_head(x, pre_logits=True)


class _TimmFeatures(nn.Module):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net.forward_features(x)


def _timm(name: str, pixels: int, weights: str | None) -> Encoder:
    """Any timm model, as one stage."""
    net = _create_timm(name, weights)
    dim = getattr(net, "head_hidden_size", net.num_features)  # some heads widen the features before they are classified
    return Encoder(nn.Sequential(_TimmFeatures(net)), dim, pixels, _TimmPool(net))


def _create_timm(name: str, weights: str | None, **options: bool) -> nn.Module:
    import timm

    if name not in timm.list_models():
        close = difflib.get_close_matches(name, timm.list_models(), 1)
        raise FscilError(f"timm has no model {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    if weights == "pretrained":
        try:
            return timm.create_model(name, pretrained=True, num_classes=0, **options)
        except Exception as problem:
            raise FscilError(
                f"the weights of {name} could not be fetched from the model hub ({type(problem).__name__}); "
                "give a local file with --weights FILE.safetensors instead"
            ) from problem
    net = timm.create_model(name, num_classes=0, **options)
    if weights is not None:
        load_weights(net, Path(weights))
    return net


def load_weights(net: nn.Module, path: Path) -> None:
    """Loads a .safetensors (or weights-only .pt/.pth) file into a network; a classifier in the file is left out."""
    if not path.is_file():
        raise FscilError(f"there is no weights file {path}; give a .safetensors or .pth file with --weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        reason = f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}"
        raise FscilError(f"{path} is not a readable weights file ({reason}); give another with --weights") from problem
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise FscilError(f"{path} holds no table of weights by name; give the state_dict of {type(net).__name__}")
    wanted = net.state_dict()
    state = {key: value for key, value in state.items() if key in wanted}
    wrong = [key for key in wanted if key not in state or state[key].shape != wanted[key].shape]
    wrong = [key for key in wrong if not key.endswith("num_batches_tracked")]
    if wrong:
        raise FscilError(f"{path} does not fit {type(net).__name__}: {wrong[0]!r} is missing or has another shape")
    net.load_state_dict({**wanted, **state})


def _no_weights(name: str, weights: str | None) -> None:
    if weights is not None:
        raise FscilError(
            f"encoder {name} has no pretrained weights; leave --weights away or take resnet18 or timm:NAME"
        )


BUILDERS: dict[str, Callable[[int, str | None], Encoder]] = {
    "resnet18": _resnet18,
    "resnet18_small": _resnet18_small,
    "resnet20": _resnet20,
    "resnet12": _resnet12,
    "fast": _fast,
    **{f"efficientnet_lite{number}": _efficientnet_lite(number) for number in range(3)},
}
