"""Encoders for inference: through ONNX Runtime where it is installed, else through torch with batch norms folded."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.files import check_writable, write_bytes
from fscil.nn import compute
from fscil.nn.encoders import Encoder
from fscil.nn.folding import folded
from fscil.teach.seeing import graphs
from fscil.tensors import digest

SAME = 1e-4  # largest difference to torch, as a share of the largest feature
LOG_SWITCH = "_jit_set_onnx_log_enabled"  # torch's own


class Unfit(Exception):
    """Why an encoder cannot run in ONNX Runtime, in words for people."""


class OnnxEncoder(Encoder):
    """An encoder that computes in ONNX Runtime: images (n, 3, p, p) -> features (n, dim)."""

    def __init__(self, encoder: Encoder, session: Any):
        super().__init__(nn.Sequential(), encoder.dim, encoder.pixels, nn.Identity())
        self._original, self._session = [encoder], session  # in a list: its weights are not needed here

    def forward(self, images: Tensor) -> Tensor:
        if compute.is_counting():
            compute.record(self, images, self._original[0].macs(images.shape[-1]))
        return torch.from_numpy(self._session.run(None, {"image": images.contiguous().numpy()})[0])


def quick(encoder: Encoder, name: str) -> Encoder:
    """What computes the same as the encoder called `name`, as fast as this machine allows."""
    choice = graphs.choice()
    if choice == "torch":
        return folded(encoder)
    try:
        return OnnxEncoder(encoder, _session(encoder, name))
    except Exception as problem:  # no package, no room, an encoder that cannot be exported: torch can do it
        if choice == "auto":
            return folded(encoder)
        raise FscilError(
            f"{name} cannot run in ONNX Runtime ({_reason(problem)}); pip install 'fscil[onnx]', or set "
            "FSCIL_RUNTIME=torch"
        ) from problem


def _reason(problem: Exception) -> str:
    """Why an encoder cannot run, in words of ours: those of packages are for their authors."""
    if isinstance(problem, FscilError | Unfit):
        return str(problem)
    if isinstance(problem, ImportError):
        return "it is not installed"
    if isinstance(problem, OSError) and problem.strerror:
        return f"its graph cannot be kept: {problem.strerror}"
    return "its graph cannot be made, or not be opened"


def _session(encoder: Encoder, name: str) -> Any:
    """A session with the graph in the cache, which is made if there is none."""
    import onnx  # noqa: F401 (torch's exporter needs it)
    import onnxruntime  # noqa: F401

    if next(encoder.parameters()).device.type != "cpu":
        raise Unfit("its weights are not in the processor's memory")
    file = graphs.place(name, digest(encoder.state_dict()), encoder.pixels)
    if not file.is_file():
        _keep(encoder, file)
    if file.stat().st_size == 0:
        raise Unfit("it cannot be exported")
    try:
        return graphs.opened(file, torch.get_num_threads())
    except Exception:
        file.unlink(missing_ok=True)  # damaged: the next command makes it again
        raise


def _keep(encoder: Encoder, file: Path) -> None:
    """Writes the graph of an encoder; an empty file says that there is none, so that nobody tries again."""
    check_writable(file)
    net = folded(nn.Sequential(encoder.stages, encoder.pool))
    try:
        content = _graph(net, encoder.pixels)
    except Exception:
        write_bytes(file, b"")
        raise
    write_bytes(file, content)
    graphs.remove_unused()


def _graph(net: nn.Module, pixels: int) -> bytes:
    """The graph of a network for images of one size, compared with torch."""
    images = torch.rand(3, 3, pixels, pixels, generator=torch.Generator().manual_seed(0))
    content = exported(net, images[:1], "image", ("features",))
    with torch.no_grad():
        expected = net(images)
    session = graphs.opened(content, torch.get_num_threads())
    features = torch.from_numpy(session.run(None, {"image": images.numpy()})[0])
    if not bool(((features - expected).abs() <= SAME * expected.abs().max()).all()):
        raise Unfit("its graph computes something else")
    return content


@torch.no_grad()
def exported(net: nn.Module, example: Tensor, given: str, results: Sequence[str]) -> bytes:
    """The graph of a network of one input, for batches of any size."""
    content: Any = io.BytesIO()  # which torch takes, but does not say
    with warnings.catch_warnings(), _without_log():
        warnings.simplefilter("ignore")  # sizes become constants, as they should
        torch.onnx.export(
            net,
            (example,),
            content,
            input_names=[given],
            output_names=list(results),
            dynamic_axes={name: {0: "photos"} for name in (given, *results)},
            dynamo=False,  # a tenth of the time of torch's newer exporter
        )
    return bytes(content.getvalue())


@contextmanager
def _without_log() -> Iterator[None]:
    """Keeps torch from printing, for a network that it cannot export, its whole graph between the user's answers.

    Its exporter means to leave its log as it is, but asks a function for its truth instead of calling it.
    """
    switch: Any = getattr(torch._C, LOG_SWITCH, None)
    if switch is None:  # a torch without that log
        yield
        return
    setattr(torch._C, LOG_SWITCH, lambda wanted: None)
    try:
        yield
    finally:
        setattr(torch._C, LOG_SWITCH, switch)
