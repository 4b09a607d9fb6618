"""101 classes: what a ridge on one-hot targets loses, and a coding of the classes that mends it."""

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Claim, Comparison, gain
from manylens import LayerRidgeClassifier
from manylens.datasets import load_dataset
from manylens.transfer import RidgeSearch


class ManyClasses(Comparison):
    """Base class: top features of EfficientNet-Lite0 for Caltech-101, and at most 3,000 test rows."""

    abstract = True
    contenders = ("ours", "one_hot", "linear_coded", "linear_one_hot", "ridge_cv", "logistic", "neighbors")
    needs = ("caltech101_effnetlite0_emb",)
    repeats = 1
    warm_up = False
    memory = False

    def training_rows(self, y, rng):
        raise NotImplementedError

    def make_data(self):
        data = load_dataset("caltech101_effnetlite0_emb")
        X, y = np.asarray(data.X, dtype=np.float32), np.unique(data.y, return_inverse=True)[1]
        rng = np.random.default_rng(0)
        if self.quick:
            few = np.flatnonzero(y < 8)
            X, y = X[few][:, :100], y[few]
        train = self.training_rows(y, rng)
        test = rng.permutation(np.setdiff1d(np.flatnonzero(np.isin(y, y[train])), train))[:3_000]
        return X[train], y[train], X[test], y[test]

    def ridge(self, data, **settings):
        X, y, new, _ = data
        return LayerRidgeClassifier(random_state=0, **settings).fit(X, y).predict(new)

    def ours(self, data):
        """Ridge with a Gaussian kernel, coding chosen by leave-one-out."""
        return self.ridge(data, alphas=RidgeSearch())

    def one_hot(self, data):
        return self.ridge(data)

    def linear_coded(self, data):
        return self.ridge(data, kernel="linear", alphas=RidgeSearch())

    def linear_one_hot(self, data):
        return self.ridge(data, kernel="linear")

    def ridge_cv(self, data):
        X, y, new, _ = data
        return (
            make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(0, 6, 13))).fit(X, y).predict(new)
        )

    def logistic(self, data):
        X, y, new, _ = data
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
        folds = min(3, int(np.unique(y, return_counts=True)[1].min()))
        search = GridSearchCV(model, {"logisticregression__C": [1e-3, 1e-2, 1e-1]}, cv=max(2, folds))
        return search.fit(X, y).predict(new)

    def neighbors(self, data):
        X, y, new, _ = data
        model = KNeighborsClassifier(metric="cosine", weights="distance")
        return GridSearchCV(model, {"n_neighbors": [1, 5, 10]}, cv=3).fit(X, y).predict(new)

    def score(self, data, labels):
        truth = data[3]
        return {
            "accuracy": float(np.mean(labels == truth)),
            "mean recall": float(balanced_accuracy_score(truth, labels)),
        }


class ManyUnequalClasses(ManyClasses):
    """20 % of Caltech-101 (1,735 rows, 4 to 157 per class) to train: ridge on one-hot targets loses rare
    classes; a coding chosen by leave-one-out finds them. Mean recall weighs all classes equally."""

    claims = (
        Claim("gain in accuracy over one-hot targets", gain("ours", "one_hot"), at_least=0.003),
        Claim(
            "gain in mean recall over one-hot targets", gain("ours", "one_hot", "mean recall"), at_least=0.01
        ),
        Claim(
            "linear kernel: gain in accuracy over one-hot targets",
            gain("linear_coded", "linear_one_hot"),
            at_least=0.01,
        ),
        Claim(
            "linear kernel: gain in mean recall over one-hot targets",
            gain("linear_coded", "linear_one_hot", "mean recall"),
            at_least=0.02,
        ),
        Claim("gain in accuracy over logistic regression", gain("ours", "logistic"), at_least=0),
        Claim("gain in accuracy over nearest neighbors", gain("ours", "neighbors"), at_least=0.02),
    )

    def training_rows(self, y, rng):
        return rng.permutation(len(y))[: int(0.2 * len(y))]


class ManyEqualClasses(ManyClasses):
    """15 rows of each class of Caltech-101 to train (1,515 rows): with equal classes, ridge on one-hot
    targets loses nothing to logistic regression, and the coding changes nothing."""

    claims = (
        Claim("gain in accuracy over logistic regression", gain("one_hot", "logistic"), at_least=-0.005),
        Claim("gain of the coding in accuracy", gain("ours", "one_hot"), at_least=-1e-9, at_most=1e-9),
    )

    def training_rows(self, y, rng):
        return np.concatenate([rng.permutation(np.flatnonzero(y == c))[:15] for c in np.unique(y)])
