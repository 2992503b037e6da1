"""Tensors on disk: safetensors with notes, never pickle; and one digest of the tensors of a module."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from fscil.errors import FscilError
from fscil.files import write_bytes


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Tensors as safetensors; `notes` (anything JSON can hold) travel in the metadata."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, safetensors.torch.save(plain, {"notes": json.dumps(notes)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and notes of a file written by `write_tensors`."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "null"))
            if not isinstance(notes, dict):
                raise ValueError("it was written by another program")
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 (not a dict)
    except (OSError, ValueError, safetensors.SafetensorError) as problem:
        raise FscilError(f"{path} is no readable checkpoint, or half of one; delete it and run again") from problem


def load_into(module: nn.Module, state: Mapping[str, Tensor], file: Path) -> None:
    """Gives a module the state that was read from a file."""
    try:
        module.load_state_dict(state)
    except (RuntimeError, LookupError) as problem:
        raise FscilError(
            f"{file} does not fit this run: it holds the state of another network; delete it and run again"
        ) from problem


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors and their names, the same whatever file they came from."""
    total = hashlib.sha256()
    for name, tensor in tensors.items():
        total.update(name.encode())
        total.update(tensor.cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
