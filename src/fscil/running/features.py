"""Features on disk: what a frozen encoder makes of images is computed once for all runs that ask for the same."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from fscil.data.images import Framing, Images
from fscil.nn.encoders import Encoder
from fscil.nn.winograd import WinogradConvolution
from fscil.tensors import digest, read_tensors, write_tensors


class Way(Protocol):
    """An encoder and the name of what it sees of an image."""

    @property
    def encoder(self) -> Encoder: ...
    @property
    def view(self) -> tuple[Any, ...]: ...


class FeatureFolder:
    """A file for each look at some images in a framing."""

    def __init__(self, folder: Path, surroundings: Mapping[str, Any]):
        self.folder = folder
        self.surroundings = surroundings  # code, versions and precision that made the features

    def file(self, look: Way, images: Images, framing: Framing) -> Path:
        """Where the features are, or will be; the name depends on everything that decides them."""
        facts = {
            "encoder": digest(look.encoder.state_dict()),
            "view": look.view,
            "images": images.fingerprint().hex(),
            "framing": repr(framing),
            "winograd": any(isinstance(part, WinogradConvolution) for part in look.encoder.modules()),
            **self.surroundings,
        }
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        return self.folder / f"features-{name}.safetensors"

    def read(self, file: Path) -> Tensor:
        """Features (n, dim) that `write` wrote."""
        return read_tensors(file)[0]["features"]

    def write(self, file: Path, features: Tensor) -> None:
        write_tensors(file, {"features": features}, {})
