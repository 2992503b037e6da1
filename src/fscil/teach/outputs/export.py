"""ONNX: one graph, image in, class scores out; the encoder's weights lie beside it, and teaching leaves them alone.

`model.onnx` holds the graph and the small classifier part (`keys` and `bias`), `encoder.bin` everything else. After a
class was taught, only `model.onnx` and `classes.json` are written anew, without tracing the encoder again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.files import check_writable, write_bytes, write_json
from fscil.nn.branches import Branches, embed_shared, fused_form, fused_query
from fscil.nn.folding import folded
from fscil.nn.readout import Evidence
from fscil.teach.knowledge.model import Model
from fscil.teach.names import NONE
from fscil.tensors import digest
from fscil.text import count

GRAPH, WEIGHTS, CLASSES = "model.onnx", "encoder.bin", "classes.json"
CLASSIFIER = ("keys", "bias", "evidence_keys", "evidence_bias")
INLINE = 1024  # bytes; smaller constants of the graph stay in it
LAYOUT = 3  # of the graph; one that was exported with another is traced again


class Scores(nn.Module):
    """RGB images (n, 3, p, p) with values 0..1 -> scores (n, classes) and evidence (n, classes), if any."""

    keys: Tensor
    bias: Tensor
    evidence_keys: Tensor
    evidence_bias: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, model: Model):
        super().__init__()
        assert model.framing is not None
        heard = [branch for branch in model.branches if branch.weight]
        self.branches = Branches(deepcopy(heard))
        self.asked = [i for i, branch in enumerate(heard) if branch.unit_means and model.calibration.tightness]
        plain: dict[int, Any] = {}  # what is called like an encoder
        for branch in self.branches:  # without counting, devices and precision; shared encoders stay shared
            encoder = branch.encoder
            # Folded here: torch's exporter folds the same batch norms in one call and leaves them alone in another.
            branch.encoder = plain.setdefault(id(encoder), folded(nn.Sequential(encoder.stages, encoder.pool)))
        form = fused_form(heard)
        self.register_buffer("keys", form.keys.T.contiguous())
        self.register_buffer("bias", form.bias)
        if self.asked:
            form = Evidence([heard[i] for i in self.asked], model.calibration.tightness or 1.0).form()
            self.register_buffer("evidence_keys", form.keys.T.contiguous())
            self.register_buffer("evidence_bias", form.bias)
        self.register_buffer("mean", torch.tensor(model.framing.mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(model.framing.std).view(1, 3, 1, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        features = embed_shared(self.branches, (image - self.mean) / self.std)
        query, offset = fused_query(self.branches, features)
        scores = query @ self.keys + self.bias + offset.unsqueeze(1)
        if not self.asked:
            return (scores,)
        return scores, torch.cat([features[i] for i in self.asked], 1) @ self.evidence_keys + self.evidence_bias


def to_onnx(model: Model, folder: Path) -> str:
    """Writes the three files and says what was written."""
    if model.framing is None or not model.names:
        raise FscilError("only a model that looks at photos and knows a class can be exported")
    check_writable(folder / GRAPH)
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError as problem:
        raise FscilError("export needs more packages: pip install 'fscil[onnx]'") from problem
    scores, frozen = Scores(model), frozen_part(model)
    graph = _with_classifier(onnx, folder, frozen, scores)
    fresh = graph is None
    if graph is None:
        graph = _traced(scores, model.framing.pixels, model.origin.encoder)
        _drop_identities(onnx, graph.graph)
        weights = _write_weights(onnx, graph, folder)
        onnx.helper.set_model_props(graph, {"fscil": frozen, "weights": weights})
    write_bytes(folder / GRAPH, graph.SerializeToString())
    write_json(folder / CLASSES, _told(model))
    files = f"{GRAPH}, {WEIGHTS} and {CLASSES}" if fresh else f"{GRAPH} and {CLASSES} ({WEIGHTS} stays as it was)"
    beside = f"; the {count(len(model.negatives), 'photo')} of {NONE} cannot be exported" if model.negatives else ""
    return f"{folder}: wrote {files}; {len(model.names)} classes{beside}"


def frozen_part(model: Model) -> str:
    """A digest of all that teaching does not change."""
    kept = {
        f"{b.name}.{name}": tensor
        for b in model.branches
        for name, tensor in b.state_dict().items()
        if "prototypes" not in name
    }
    settings = [[b.name, b.relation, b.views, b.unit, b.length, b.stretched] for b in model.branches]
    return digest(kept) + json.dumps(
        [LAYOUT, settings, model.framing and [model.framing.pixels, model.framing.mean, model.framing.std]]
    )


def _traced(scores: Scores, pixels: int, encoder: str) -> Any:
    """The graph of an image as large as the encoder wants it, in batches of any size."""
    example, batch = torch.rand(2, 3, pixels, pixels), torch.export.Dim("photos")
    try:
        program = torch.onnx.export(
            scores.eval(),
            (example,),
            dynamo=True,
            input_names=["image"],
            output_names=["scores", "evidence"] if scores.asked else ["scores"],
            dynamic_shapes={"image": {0: batch}},
            verbose=False,
        )
    except Exception as problem:  # of many kinds, in words for the authors of torch
        raise FscilError(
            f"torch cannot write the encoder {encoder} as an ONNX graph; learn with another one, such as "
            "efficientnet_lite0, to export it"
        ) from problem
    assert program is not None  # as always with dynamo
    graph = program.model_proto
    for node in graph.graph.node:
        del node.metadata_props[:]  # stack traces with the paths of this machine
    return graph


def _drop_identities(onnx: Any, graph: Any) -> None:
    """Takes products with an identity out of a graph: the whitening of a branch that was not whitened is one."""
    square = {t.name: t for t in graph.initializer if len(t.dims) == 2 and t.dims[0] == t.dims[1]}
    arrays = {name: onnx.numpy_helper.to_array(tensor) for name, tensor in square.items()}
    identities = {name for name, values in arrays.items() if np.array_equal(values, np.eye(len(values)))}
    idle = [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in identities]
    for product in idle:
        for node in graph.node:
            node.input[:] = [product.input[0] if name == product.output[0] else name for name in node.input]
        graph.node.remove(product)
    gone = identities - {name for node in graph.node for name in node.input}
    for name in gone:
        graph.initializer.remove(square[name])
    names = gone | {product.output[0] for product in idle}
    for value in [value for value in graph.value_info if value.name in names]:
        graph.value_info.remove(value)


def _write_weights(onnx: Any, graph: Any, folder: Path) -> str:
    """Moves the weights of the encoder out of the graph into their own file; gives its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    for tensor in graph.graph.initializer:
        if tensor.name not in CLASSIFIER and len(tensor.raw_data) >= INLINE:
            onnx.external_data_helper.set_external_data(tensor, WEIGHTS)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        onnx.save_model(graph, Path(beside) / GRAPH)  # writes the weights, too
        graph.CopyFrom(onnx.load(Path(beside) / GRAPH, load_external_data=False))
        content = (Path(beside) / WEIGHTS).read_bytes()
    write_bytes(folder / WEIGHTS, content)
    return hashlib.sha256(content).hexdigest()


def _with_classifier(onnx: Any, folder: Path, frozen: str, scores: Scores) -> Any:
    """The graph that is already there with the new classifier part; None where it is of another encoder, or broken."""
    try:
        graph = onnx.load(folder / GRAPH, load_external_data=False)
        weights = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    except Exception:  # whatever is wrong with them, they are going to be replaced
        return None
    if {"fscil": frozen, "weights": weights} != {prop.key: prop.value for prop in graph.metadata_props}:
        return None
    for tensor in graph.graph.initializer:
        if tensor.name in CLASSIFIER:
            tensor.CopyFrom(onnx.numpy_helper.from_array(getattr(scores, tensor.name).numpy(), tensor.name))
    del graph.graph.value_info[:]  # shapes with the former number of classes
    for output in graph.graph.output:
        output.type.tensor_type.shape.dim[1].dim_value = scores.keys.shape[1]
    return graph


def _told(model: Model) -> dict[str, Any]:
    """What a program needs besides the graph."""
    assert model.framing is not None
    c = model.calibration
    return {
        "classes": model.classes,
        "image": {
            "layout": "float32 (n, 3, pixels, pixels), RGB, values 0..1",
            "pixels": model.framing.pixels,
            "margin": model.framing.margin,
            "resampling": model.framing.resampling,
            "how": "scale the short side to margin * pixels with that resampling, take the centre",
        },
        "probabilities": {"temperature": c.temperature, "how": "softmax(temperature * scores)"},
        "known": {
            "output": "scores" if c.tightness is None else "evidence",
            "threshold": None if c.threshold is None else c.threshold + c.shift(len(model.names)),
            "margin": c.margin,
            "how": "best + margin * (best - second) of that output >= threshold",
        },
    }
