"""Tensors on disk are what the safetensors package reads, whatever their kind and shape."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import fscil.tensors
from fscil.tensors import KINDS, digest, read_tensors, write_tensors


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)], ids=str)
def test_every_kind_comes_back(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensors = {"odd": torch.ones(3, dtype=torch.uint8), "it": (10 * torch.rand(shape)).to(dtype)}
    write_tensors(tmp_path / "file", tensors, {"a": "é"})
    for read in (load_file(tmp_path / "file"), read_tensors(tmp_path / "file")[0]):
        assert read["it"].dtype == dtype
        assert torch.equal(read["it"], tensors["it"])
        assert torch.equal(read["odd"], tensors["odd"])
    assert read_tensors(tmp_path / "file")[1] == {"a": "é"}


def test_a_tensor_in_another_order_of_memory(tmp_path: Path) -> None:
    weights = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    write_tensors(tmp_path / "ours", {"it": weights}, {})
    save_file({"it": weights.contiguous()}, tmp_path / "theirs")
    assert torch.equal(load_file(tmp_path / "ours")["it"], load_file(tmp_path / "theirs")["it"])
    assert digest({"it": weights}) == digest({"it": weights.contiguous()})


def test_a_large_tensor_is_read_once_for_a_digest_and_again_when_it_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    content = fscil.tensors._content
    monkeypatch.setattr(fscil.tensors, "_content", lambda tensor: (read.append(tensor.nbytes), content(tensor))[1])
    large, small = torch.rand(600, 600), torch.rand(3)

    def plain(*tensors: torch.Tensor) -> str:
        return hashlib.sha256(
            b"".join(f"{i}".encode() + t.numpy().tobytes() for i, t in enumerate(tensors))
        ).hexdigest()

    def ours(*tensors: torch.Tensor) -> str:
        return digest({str(i): tensor for i, tensor in enumerate(tensors)})

    for change in (lambda: None, lambda: None, lambda: small.add_(1), lambda: large[5:].mul_(2), lambda: large.neg_()):
        change()
        assert ours(large, small, large) == plain(large, small, large)
        assert ours(small, large) == plain(small, large)
    assert ours(large) == plain(large)
    before = len(read)
    assert ours(large, small) == plain(large, small)
    assert read[before:] == [12]
