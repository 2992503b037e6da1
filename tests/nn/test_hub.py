"""Encoders by plain names: the table says what timm says; weights are downloaded once, kept and verified."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save, save_file

from fscil.errors import FscilError
from fscil.nn import encoders, hub
from fscil.nn.published import HUB, Published
from fscil.teach.knowledge import backbones
from hub import Hub, stand_in

SMALL = Published("test_vit.r160_in1k", 1, 160, 64, "apache-2.0")


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return timm.create_model(SMALL.timm).state_dict()


@pytest.fixture
def local_hub(weights: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on this machine with the weights of a small Transformer, called `small_vit`; an empty cache."""
    monkeypatch.setitem(HUB, "small_vit", SMALL)
    with stand_in(save(weights)) as server:
        point_to(server.address, tmp_path, monkeypatch)
        yield server


def point_to(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))


@pytest.mark.parametrize("name", HUB)
def test_the_table_says_what_timm_says(name: str) -> None:
    net, config = HUB[name], timm.models.get_pretrained_cfg(HUB[name].timm)
    assert (net.pixels, net.licence) == (config.input_size[-1], config.license)
    assert config.hf_hub_id == f"timm/{net.timm}"
    assert config.hf_hub_filename is None
    with torch.device("meta"):
        model = timm.create_model(net.timm, num_classes=0)
    numbers = sum(tensor.numel() for tensor in model.state_dict().values())
    assert net.megabytes == round(4e-6 * numbers)
    assert net.dim == getattr(model, "head_hidden_size", model.num_features)


def test_weights_are_downloaded_once_and_kept(local_hub: Hub, weights: dict[str, torch.Tensor]) -> None:
    encoder = encoders.build("small_vit", 160, "pretrained")
    assert torch.equal(encoder.stages[0].net.cls_token, weights["cls_token"])
    assert sum(line.startswith("GET") and line.endswith(hub.FILE) for line in local_hub.asked) == 1
    local_hub.asked.clear()
    encoders.build("small_vit", 160, "pretrained")
    assert local_hub.asked == []


def test_the_model_says_where_its_weights_come_from(local_hub: Hub) -> None:
    model = backbones.of_encoder("small_vit")
    assert model.origin.encoder == "small_vit"
    assert model.origin.weights == "test_vit.r160_in1k of the model hub"
    assert model.origin.licence == "apache-2.0"
    framing = model.framing
    assert (framing.pixels, framing.mean, framing.std, framing.resampling) == (160, (0.5,) * 3, (0.5,) * 3, "bicubic")
    assert framing.margin == pytest.approx(1 / 0.95)


def test_what_is_not_what_was_announced_is_deleted(local_hub: Hub, weights: dict[str, torch.Tensor]) -> None:
    local_hub.announced = "0" * 64
    with pytest.raises(FscilError, match="is not what the model hub announced and was deleted: try again"):
        encoders.build("small_vit", 160, "pretrained")
    local_hub.announced = "1" * 64
    with pytest.raises(FscilError, match="announced"):  # asked again: nothing of the first try is left
        encoders.build("small_vit", 160, "pretrained")


def test_a_damaged_cache_is_noticed(local_hub: Hub) -> None:
    encoders.build("small_vit", 160, "pretrained")
    path = hub.cached("timm/test_vit.r160_in1k")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.resolve().write_bytes(content)
    with pytest.raises(FscilError, match="announced"):
        encoders.build("small_vit", 160, "pretrained")
    encoders.build("small_vit", 160, "pretrained")


def test_weights_of_another_net_are_named_in_plain_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HUB, "small_vit", SMALL)
    with stand_in(save({"cls_token": torch.zeros(1)})) as server:
        point_to(server.address, tmp_path, monkeypatch)
        with pytest.raises(FscilError, match=r"is damaged or .* cannot read it as test_vit\.r160_in1k;") as said:
            encoders.build("small_vit", 160, "pretrained")
    assert "delete it and try again, update timm, or give a local file with --weights" in str(said.value)
    assert "state_dict" not in str(said.value)


def test_without_a_network_one_sentence_comes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HUB, "small_vit", SMALL)
    point_to("http://127.0.0.1:9", tmp_path, monkeypatch)
    began = time.perf_counter()
    with pytest.raises(
        FscilError, match=r"could not be downloaded from the model hub \(it cannot be reached\)"
    ) as said:
        encoders.build("small_vit", 160, "pretrained")
    assert "--weights" in str(said.value)
    assert "efficientnet_lite0" in str(said.value)
    assert time.perf_counter() - began < 5
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FscilError, match="HF_HUB_OFFLINE is set"):
        encoders.build("small_vit", 160, "pretrained")


class Answered(OSError):
    """As the hub's client has it: an answer, and words about it."""

    def __init__(self, status: int):
        super().__init__("401 Client Error for url: https://…")
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (Answered(401), "it answered with the status 401"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (KeyError("etag"), "its client could not fetch them"),
        (RuntimeError(), "its client could not fetch them"),
    ],
)
def test_a_failed_download_is_told_in_plain_words(
    problem: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(url: str) -> None:
        raise problem

    monkeypatch.setattr(hub, "_reach", fail)
    with pytest.raises(FscilError, match=rf"could not be downloaded from the model hub \({told}\); try again"):
        hub._downloaded("timm/test_vit.r160_in1k", "model.safetensors")


def test_a_local_file_is_taken_instead(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(weights, tmp_path / "mine.safetensors")
    model = backbones.of_encoder("timm:test_vit.r160_in1k", str(tmp_path / "mine.safetensors"))
    assert torch.equal(model.branches[0].encoder.stages[0].net.cls_token, weights["cls_token"])
    assert model.origin.weights == "file mine.safetensors"


def test_a_transformer_takes_images_of_another_size(weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(weights, tmp_path / "mine.safetensors")
    encoder = encoders.build("timm:test_vit", 64, str(tmp_path / "mine.safetensors"))
    assert encoder(torch.zeros(2, 3, 64, 64)).shape == (2, 64)
    assert encoder.stages[0].net.pos_embed.shape == (1, 17, 64)
    with pytest.raises(FscilError, match="--pixels"):
        encoders.build("timm:test_vit", 8)
