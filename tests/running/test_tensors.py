"""Tensors on disk are what the safetensors package reads, whatever their kind and shape."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

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
