"""Classifier: the scikit-learn-like estimator that can be taught new classes without the old photos."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fscil.errors import FscilError
from fscil.nn.branches import Views
from fscil.teach.base import learning, planning
from fscil.teach.base.choosing import model_for
from fscil.teach.base.fitting import Wish
from fscil.teach.knowledge import backbones
from fscil.teach.lessons import correcting, inputs, teaching
from fscil.teach.lessons.looking import glance
from fscil.teach.names import check_names
from fscil.teach.seeing.photos import summary
from fscil.teach.storage import modelfile
from fscil.text import printable

Strength = Literal["auto", "prototypes", "transfer"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)


class Classifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Learns classes of photos, and new ones later from a few photos each, without the old photos.

    Parameters
    ----------
    encoder : "auto" (efficientnet_lite0, or its layout where that suits the photos clearly better), "best" (two
        encoders with mirror images, or two layouts with negatives), a name ("efficientnet_lite2", "timm:NAME", ...),
        run folder of a frozen method, or None: X holds features.
    strength : "prototypes" (class means), "transfer" (also trains a small map; takes several times as long), or "auto".
    weights : None (pretrained), or a local file with the weights of the encoder.
    pixels : size of the images the encoder sees; None: its own.
    views : "one", or "flip" or "negative" to average the features of a photo and of its mirror image or negative.
    false_acceptance : share of unknown photos that `is_known` may take for known.
    keep_features : "all", or "none": photos leave no feature, and `unteach` and `correct` need the photos themselves.
    random_state : seed of everything that is drawn.

    Attributes
    ----------
    classes_ : the classes in the order of the columns; later ones come behind, earlier ones never move.
    model_ : the `Model` behind it, a sum of Branches.
    told_ : sentences of `fit`: what was chosen and why, and what a trained map gained.

    Examples
    --------
    >>> from fscil import Classifier
    >>> X = [[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]]
    >>> birds = Classifier(encoder=None).fit(X, ["wren", "wren", "jay", "jay"])
    >>> birds.partial_fit([[-1.0, -1.0], [-1.1, -0.9]], ["hoopoe", "hoopoe"]).predict([[-1.0, -1.1]]).tolist()
    ['hoopoe']
    >>> birds.classes_.tolist()
    ['jay', 'wren', 'hoopoe']
    """

    def __init__(
        self,
        encoder: str | None = backbones.AUTO,
        *,
        strength: Strength = "auto",
        weights: str | None = None,
        pixels: int | None = None,
        views: Views = "one",
        false_acceptance: float = 0.05,
        keep_features: Literal["all", "none"] = "all",
        random_state: int = 0,
    ):
        self.encoder = encoder
        self.strength = strength
        self.weights = weights
        self.pixels = pixels
        self.views = views
        self.false_acceptance = false_acceptance
        self.keep_features = keep_features
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike | None = None) -> Classifier:
        """Learns from photos X of classes y, or from a folder X with one sub-folder per class; forgets all it knew."""
        self._check_settings()
        if y is None:
            X, y = inputs.folder(X, self.encoder)
        if self.encoder is None:
            _warn(lesson := self._fit_features(X, y), lesson.taught)
            return self
        X = inputs.sources(X)
        names = inputs.labels(y, len(X))
        check_names(names)
        order = inputs.sorted_order(names)
        sources, called = [X[i] for i in order], [names[i] for i in order]
        share, seed, told = self.false_acceptance, self.random_state, list[str]()
        model, known = model_for(self.encoder, self.weights, self.pixels, self.views, sources, called, told.append)
        model.memory.keep = self.keep_features == "all"
        lesson = learning.learn(model, sources, called, self.strength, share, seed=seed, known=known, tell=told.append)
        self.model_, self.told_ = model, told
        if self.strength == "transfer" != model.origin.strength:
            lesson.advice.append(told[-1])  # it is kept in told_, which nobody need read
        _warn(lesson, len(sources))
        return self

    def partial_fit(self, X: Any, y: ArrayLike, classes: ArrayLike | None = None) -> Classifier:
        """Adds photos to classes. Unlike elsewhere in scikit-learn, a label that was never seen is welcome at any time.

        `classes` is accepted because other tools pass it, and not needed. The first call is the same as `fit`.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        X = validate_data(self, X, reset=False, dtype=np.float64) if self.encoder is None else inputs.sources(X)
        names = inputs.labels(y, len(X))
        for name in dict.fromkeys(names):
            self.model_.check_kind(name)
        check_names(names)
        if self.encoder is None:
            self.model_.teach(names, self.model_.embed(inputs.table(X)))
        else:
            _warn(teaching.teach(self.model_, names, X), len(X))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each photo; there always is one, `is_known` says whether to believe it."""
        answers: NDArray[Any] = self.classes_[self._scores(X).argmax(1).numpy()]
        return answers

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities (n, classes)."""
        scores = self._scores(X)
        return self.model_.probabilities(scores.double()).numpy()

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, classes); for two classes (n,), the lead of the second over the first, as scikit-learn has it."""
        scores = self._scores(X).double().numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def is_known(self, X: Any) -> NDArray[np.bool_]:
        """Whether each photo belongs to one of the classes, at the chosen rate of false acceptance."""
        features = self._asked(X)
        return self.model_.known(features).numpy()

    def adjust(self, false_acceptance: float) -> Classifier:
        """Moves the threshold of `is_known`; what it costs is then told by `model_.accepted`."""
        check_is_fitted(self)
        self.model_.adjust(false_acceptance)
        self.false_acceptance = false_acceptance
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The features (n, d) that photos are compared by; those of several encoders stand side by side."""
        check_is_fitted(self)
        branches = self.model_.branches
        first = {id(branch.encoder): position for position, branch in reversed(list(enumerate(branches)))}
        features = self._features(X)
        return torch.cat([branches[at].counted(features[at]) for at in sorted(first.values())], 1).numpy()

    def unteach(self, X: Any, y: ArrayLike) -> Classifier:
        """Takes photos X back out of their classes y, as if never taught; a class without photos is forgotten.

        X holds photos, or the first digits of their digests as `fscil photos` lists them.
        """
        self._check_photos()
        with correcting.all_or_nothing(self.model_):
            for name, given in inputs.by_class(X, y):
                correcting.unteach(self.model_, name, given)
        return self

    def correct(self, X: Any, y: ArrayLike) -> Classifier:
        """Counts photos X into their right classes y, and out of those they were taught as: one step for each class."""
        self._check_photos()
        with correcting.all_or_nothing(self.model_):
            for name, given in inputs.by_class(X, y):
                self.model_.check_kind(name)
                correcting.correct(self.model_, name, given)
        return self

    def teach_none(self, X: Any) -> Classifier:
        """Keeps photos X that show none of the classes: photos like them are not known."""
        self._check_photos()
        X = inputs.sources(X)
        _warn(correcting.teach_none(self.model_, X), len(X))
        return self

    def forget(self, label: Any, *, erase: bool = False) -> Classifier:
        """Removes a class; with `erase` every trace of it, which is final."""
        check_is_fitted(self)
        (self.model_.erase if erase else self.model_.forget)(inputs.plain(label))
        return self

    def rename(self, label: Any, new: Any) -> Classifier:
        """Gives a class another name."""
        check_is_fitted(self)
        self.model_.rename(inputs.plain(label), inputs.plain(new))
        return self

    def undo(self) -> Classifier:
        """Takes the last step back: `partial_fit`, `unteach`, `correct`, `teach_none`, `forget`, `rename`, `adjust`."""
        check_is_fitted(self)
        step = self.model_.undo()
        if step.not_sure is not None:
            self.false_acceptance = step.not_sure.false_acceptance
        return self

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes one file without pickle; it replaces an existing file only if that is this model, or if told so."""
        check_is_fitted(self)
        (modelfile.replace if overwrite else modelfile.save_over)(self.model_, path)

    @classmethod
    def load(cls, path: str | Path) -> Classifier:
        """The classifier in a file of `save` or `fscil learn`; after `--train`, which `fit` cannot do, it is "auto"."""
        model = modelfile.load(path)
        loaded = cls(
            None if model.framing is None else model.origin.encoder,
            weights=None if model.framing is None else backbones.given_weights(model.origin),
            strength=next((known for known in STRENGTHS if known == model.origin.strength), "auto"),
            pixels=None if model.framing is None else model.framing.pixels,
            views=model.branches[0].views,
            false_acceptance=model.calibration.false_acceptance,
            keep_features="all" if model.memory.keep else "none",
            random_state=model.origin.seed,
        )
        loaded.model_ = model
        if model.framing is None:
            loaded.n_features_in_ = model.branches[0].encoder.dim
        return loaded

    @property
    def classes_(self) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        return np.array(self.model_.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.encoder is None
        tags.input_tags.string = self.encoder is not None
        tags.no_validation = self.encoder is not None
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _fit_features(self, X: Any, y: ArrayLike) -> teaching.Lesson:
        X, y = validate_data(self, X, y, dtype=np.float64)
        names = inputs.labels(y, len(X))
        order = inputs.sorted_order(names)
        called = [names[i] for i in order]
        model = backbones.of_features(X.shape[1])
        plan = planning.plan_for(model, called, self.strength, self.random_state)
        wish = Wish(strength=plan.strength, false_acceptance=self.false_acceptance, seed=self.random_state)
        told = learning.learn_table(model, inputs.table(X[order]), called, wish)
        self.model_, self.told_ = model, [told] if told else []
        return teaching.Lesson(len(called), advice=[told] if told and model.origin.strength != "transfer" else [])

    def _check_settings(self) -> None:
        inputs.check_choice("strength", self.strength, STRENGTHS)
        inputs.check_choice("views", self.views, get_args(Views))
        inputs.check_choice("keep_features", self.keep_features, ("all", "none"))
        inputs.check_share("false_acceptance", self.false_acceptance)
        inputs.check_random_state(self.random_state)

    def _scores(self, X: Any) -> Tensor:
        """Scores (n, classes)."""
        features = self._asked(X)
        return self.model_.scores(features)

    def _asked(self, X: Any) -> list[Tensor]:
        """As `_features`, to be compared with classes: there has to be one."""
        check_is_fitted(self)
        if not self.model_.names:
            raise FscilError("every class was forgotten; teach one with partial_fit before asking")
        return self._features(X)

    def _features(self, X: Any) -> list[Tensor]:
        """The features of each branch (n, dim)."""
        if self.model_.framing is None:
            X = validate_data(self, X, reset=False, dtype=np.float64)
            return self.model_.embed(inputs.table(X))
        X = inputs.sources(X)
        seen = glance(self.model_, X)
        if seen.unreadable:
            raise FscilError(f"nothing was predicted: {summary(seen.unreadable, len(X))}")
        return seen.features

    def _check_photos(self) -> None:
        check_is_fitted(self)
        if self.model_.framing is None:
            raise FscilError("a model of ready features keeps no photos to correct; forget the class and teach it anew")


def _warn(lesson: teaching.Lesson, total: int) -> None:
    for sentence in lesson.remarks(total):
        warnings.warn(printable(sentence), UserWarning, stacklevel=3)
