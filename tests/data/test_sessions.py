"""One rule cuts data sets into sessions: TOPIC's; a session shows a method nothing but what the setting allows."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil.data import Protocol, benchmark, names
from fscil.data.images import Images, Ingredients, TensorImages
from fscil.data.sessions import Benchmark, shuffled
from fscil.errors import FscilError

TWO_SHOTS = Protocol(shots=2)


def ingredients(counts: list[int], tests: int = 2, base_classes: int = 4, ways: int = 2) -> Ingredients:
    """Classes with these numbers of training images, in mixed order; each image's pixels hold its index."""

    def store(labels: torch.Tensor) -> TensorImages:
        labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
        return TensorImages(torch.arange(len(labels)).to(torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2), labels)

    classes = torch.arange(len(counts))
    train, test = store(classes.repeat_interleave(torch.tensor(counts))), store(classes.repeat_interleave(tests))
    class_names = tuple(f"class {i}" for i in range(len(counts)))
    return Ingredients(train, test, class_names, 2, (0.5,) * 3, (0.5,) * 3, True, base_classes, ways)


def build(counts: list[int], protocol: Protocol = TWO_SHOTS, **defaults: int) -> Benchmark:
    return Benchmark("made up", ingredients(counts, **defaults), protocol)


@pytest.mark.parametrize(
    ("count", "first"), [(500, [304, 340, 47, 67, 479]), (30, [17, 21, 10, 19, 14]), (29, [14, 21, 18, 20, 25])]
)
def test_seed_one_draws_the_published_shots(count, first):
    drawn = shuffled(torch.arange(count) * 3, seed=1)
    assert drawn[:5].tolist() == [3 * i for i in first]
    assert sorted(drawn.tolist()) == [3 * i for i in range(count)]


def test_base_holds_all_images_and_new_sessions_the_first_shots():
    made = build([6, 7, 6, 9, 6, 6, 8, 6])
    labels = made._train.labels
    sessions = list(made.sessions())
    assert [session.classes for session in sessions] == [(0, 1, 2, 3), (4, 5), (6, 7)]
    for session in sessions:
        shots = None if session.index == 0 else 2
        expected = [shuffled((labels == label).nonzero()[:, 0], 1)[:shots] for label in session.classes]
        assert torch.equal(made.train_indices(session.index), torch.cat(expected))
        assert torch.equal(session.train.labels, labels[torch.cat(expected)])
    assert [len(session.train) for session in sessions] == [28, 4, 4]
    assert made.first_seen == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2, 7: 2}
    assert made.session_count == 3


def test_the_published_numbers_of_images():
    made = build([500] * 100, Protocol(), tests=100, base_classes=60, ways=5)
    assert [len(session.train) for session in made.sessions()] == [30000] + [25] * 8
    assert [len(made.test(t)) for t in range(9)] == list(range(6000, 10001, 500))


def test_the_last_session_takes_what_is_left():
    made = build([3] * 9, Protocol(shots=2, base_classes=4, ways=3))
    assert [len(session.classes) for session in made.sessions()] == [4, 3, 2]
    assert build([3] * 4, Protocol(shots=2)).session_count == 1


def test_held_out_images_are_the_last_of_the_permutation():
    made = build([8] * 8)
    plain, held = list(made.sessions()), list(made.sessions(held_out=3))
    whole = made.train_indices(0).view(4, 8)
    kept = made._train.select(whole[:, 5:].flatten())
    assert torch.equal(held[0].held_out._rows, kept._rows)
    assert torch.equal(held[0].train._rows, whole[:, :5].flatten())
    assert plain[0].held_out is None
    assert held[1].held_out is None
    assert torch.equal(held[1].train._rows, plain[1].train._rows)
    with pytest.raises(FscilError, match=r"class 0 has 8 .* keep 8 .*: lower --held_out"):
        made.base(8)


def test_the_past_is_shown_to_oracles_only():
    made = build([4] * 8)
    assert all(session.past is None for session in made.sessions())
    sessions = list(made.sessions(oracle=True))
    assert sessions[0].past is None
    earlier = torch.cat([sessions[0].train._rows, sessions[1].train._rows])
    assert torch.equal(sessions[2].past._rows, earlier)


def test_a_session_holds_no_test_image():
    made = build([4] * 8)
    storage = made._test._pixels.data_ptr()
    for session in made.sessions(oracle=True, held_out=1):
        stores = [value for value in vars(session).values() if isinstance(value, Images)]
        assert stores
        assert all(store._pixels.data_ptr() != storage for store in stores)
        with pytest.raises(dataclasses.FrozenInstanceError):
            session.train = made.test(0)


@given(st.integers(5, 14), st.integers(1, 4), st.none() | st.integers(0, 50), st.integers(0, 50))
@settings(max_examples=40)
def test_every_class_arrives_once_and_tests_grow_by_appending(classes, ways, order_seed, shots_seed):
    protocol = Protocol(base_classes=3, ways=ways, shots=2, order_seed=order_seed, shots_seed=shots_seed)
    made = build([5] * classes, protocol)
    assert sorted(made.order) == list(range(classes))
    assert sum((session.classes for session in made.sessions()), ()) == made.order
    for t in range(made.session_count):
        seen = {label for label, first in made.first_seen.items() if first <= t}
        images = made.test(t)
        assert sorted(images.labels.tolist()) == sorted(2 * list(seen))
        if t:
            before = made.test(t - 1)
            assert torch.equal(images._rows[: len(before)], before._rows)
        new = images.labels[-2 * len(made.session_classes[t]) :]
        assert torch.equal(new, new.sort().values)


def test_seeds_draw_other_shots_and_other_orders():
    plain, shots, order = (
        build([20] * 8, Protocol(shots=3, **seeds)) for seeds in ({}, {"shots_seed": 2}, {"order_seed": 2})
    )
    assert plain.order == shots.order != order.order
    assert plain.train_indices(1).tolist() != shots.train_indices(1).tolist()
    assert plain.train_indices(0).sort().values.equal(shots.train_indices(0).sort().values)
    assert len({made.fingerprint() for made in (plain, shots, order)}) == 3
    assert plain.fingerprint() == build([20] * 8, Protocol(shots=3)).fingerprint()
    assert plain.fingerprint() != build([20] * 7 + [21], Protocol(shots=3)).fingerprint()


def test_another_order_of_later_classes_leaves_the_base_session_as_it_is():
    plain, other, both = (
        build([20] * 8, Protocol(base_classes=4, ways=2, shots=3, **seeds))
        for seeds in ({}, {"later_order_seed": 2}, {"order_seed": 5, "later_order_seed": 2})
    )
    assert plain.order[:4] == other.order[:4]
    assert plain.order[4:] != other.order[4:]
    assert sorted(plain.order[4:]) == sorted(other.order[4:])
    assert sorted(both.order) == list(range(8))
    assert plain.base_fingerprint() == other.base_fingerprint() != both.base_fingerprint()
    assert plain.fingerprint() != other.fingerprint()
    label = other.order[4]  # its shots are those that it always has
    shots = {made: made.train_indices(made.first_seen[label]) for made in (plain, other)}
    drawn = [made._train.labels[indices] == label for made, indices in shots.items()]
    assert shots[plain][drawn[0]].tolist() == shots[other][drawn[1]].tolist()


def test_without_later_classes_their_order_is_empty():
    assert build([20] * 8, Protocol(base_classes=8, shots=3, later_order_seed=1)).order == tuple(range(8))


def test_the_fingerprint_is_that_of_the_pixels_too():
    plain, parts = build([6] * 8), ingredients([6] * 8)
    assert plain.fingerprint() == Benchmark("made up", parts, TWO_SHOTS).fingerprint()
    for part in ("train", "test"):
        images = getattr(parts, part)
        pixels = images.pixels
        pixels[3, 1, 0, 1] += 1
        changed = dataclasses.replace(parts, **{part: TensorImages(pixels, images.labels)})
        assert Benchmark("made up", changed, TWO_SHOTS).fingerprint() != plain.fingerprint()


def test_the_fingerprint_of_images_in_memory_is_that_of_the_images_and_not_of_their_place():
    images = ingredients([6] * 8).train
    order = torch.arange(len(images)).flip(0)
    backwards = TensorImages(images.pixels[order], images.labels[order])
    assert backwards.fingerprint() != images.fingerprint()
    assert backwards.select(order).fingerprint() == images.fingerprint()
    assert images.select([]).fingerprint() != images.fingerprint()


def test_impossible_protocols_are_refused():
    with pytest.raises(FscilError, match=r"2 shots in class 3 \(1\), class 6 \(0\): add images"):
        build([4, 4, 4, 1, 4, 4, 0, 4]).require_shots()
    with pytest.raises(FscilError, match="9 base classes, but made up has 8"):
        build([4] * 8, Protocol(base_classes=9))
    for setting in ("ways", "shots", "base_classes"):
        with pytest.raises(FscilError, match=f"{setting} is 0"):
            build([4] * 8, Protocol(**{setting: 0}))


def test_an_unknown_data_set_gets_a_suggestion():
    with pytest.raises(FscilError, match="did you mean 'cifar100'"):
        benchmark("cifar10")
    with pytest.raises(FscilError, match="known: cifar100, cub200, folder, glyphs, mini_imagenet"):
        benchmark("xyz")
    assert names() == ("cifar100", "cub200", "folder", "glyphs", "mini_imagenet")


@pytest.mark.parametrize("setting", [{"test_share": 0.3}, {"split": "split.csv"}])
def test_test_images_are_chosen_in_folders_only(setting):
    with pytest.raises(FscilError, match="--test-share and --split are for the data set folder, not for glyphs"):
        benchmark("glyphs", protocol=Protocol(**setting))


def test_settings_of_the_protocol_need_no_torch():
    code = "import sys, fscil.data; fscil.data.Protocol(); fscil.data.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
