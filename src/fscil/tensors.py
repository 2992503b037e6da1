"""Tensors on disk (safetensors with notes, never pickle), one digest of those of a module, their way to a device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from fscil.errors import FscilError
from fscil.files import write_bytes

LARGE = 1_000_000  # bytes of a tensor that is worth remembering
KINDS = {  # as safetensors calls them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Part(NamedTuple):
    """A tensor as it lies in a file."""

    kind: str
    shape: tuple[int, ...]
    number: int  # bytes of one number
    content: memoryview


def part(tensor: Tensor) -> Part:
    """A tensor as it will lie in a file; its numbers are not copied if they lie in order."""
    plain = tensor.detach().cpu().contiguous()
    return Part(KINDS[plain.dtype], tuple(plain.shape), plain.element_size(), _content(plain))


def write_tensors(path: Path, tensors: Mapping[str, Tensor | Part], notes: Mapping[str, Any]) -> None:
    """Tensors as safetensors, without a copy of them in memory; `notes` (anything JSON can hold) travel along."""
    parts = {name: one if isinstance(one, Part) else part(one) for name, one in tensors.items()}
    order = sorted(parts, key=lambda name: (-parts[name].number, name))  # so that each lies at its own size
    header: dict[str, Any] = {"__metadata__": {"notes": json.dumps(notes)}}
    end = 0
    for name in order:
        start, end = end, end + len(parts[name].content)
        header[name] = {"dtype": parts[name].kind, "shape": parts[name].shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write_bytes(path, len(text).to_bytes(8, "little"), text, *(parts[name].content for name in order))


def _content(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied."""
    flat = tensor.reshape(-1)
    array: Any = (flat.view(torch.uint8) if flat.dtype == torch.bfloat16 else flat).numpy()  # numpy knows no bfloat16
    return memoryview(array).cast("B") if len(flat) else memoryview(b"")


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and notes of a file written by `write_tensors`."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "null"))
            if not isinstance(notes, dict):
                raise ValueError("it was written by another program")
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118 (not a dict)
    except (OSError, ValueError, safetensors.SafetensorError) as problem:
        damaged = "is no readable checkpoint, or half of one; delete it and run again"
        raise FscilError(f"{path} {damaged if path.exists() else 'is missing; run again'}") from problem


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
        total = _after(total, tensor)
    return total.hexdigest()


class Counted(NamedTuple):
    """How far a digest had come before a tensor, which state of the tensor was counted in, and the digest after it."""

    before: bytes
    version: int
    after: hashlib._Hash


_LARGE: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor -> Counted


def _after(total: hashlib._Hash, tensor: Tensor) -> hashlib._Hash:
    """The digest with one more tensor; a large one that comes at the same place again is not read again."""
    if tensor.nbytes < LARGE or tensor.is_inference():  # which do not tell whether they were written to
        total.update(_content(tensor.detach().cpu().contiguous()))
        return total
    before = total.digest()
    known: Counted | None = _LARGE.get(tensor)
    if known is None or (known.before, known.version) != (before, tensor._version):
        total.update(_content(tensor.detach().cpu().contiguous()))
        known = _LARGE[tensor] = Counted(before, tensor._version, total)
    return known.after.copy()


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on its way to a device, which may go on computing; the host does not wait until it has arrived.

    CUDA fetches it from pinned memory by itself; larger tensors of other memory it takes only when it is done before.
    """
    goes = device.type == "cuda" and tensor.device.type == "cpu"
    return (tensor.pin_memory() if goes else tensor).to(device, non_blocking=True)
