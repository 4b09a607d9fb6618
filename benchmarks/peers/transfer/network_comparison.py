"""Contenders and scores that the benchmarks on network features share."""

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data.network_features import Task, network_features, reason_to_leave_out
from benchmarks.harness import Comparison
from manylens import LayerRidgeClassifier, expected_calibration_error
from manylens.papers.linear_kernel_alignment import layer_ridge, rbf_ensemble


def logistic():
    """Logistic regression on standardized features, C by cross-validation."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    return GridSearchCV(model, {"logisticregression__C": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}, cv=5)


class NetworkComparison(Comparison):
    """Base class of comparisons on features of EfficientNet-Lite0, collected in advance."""

    abstract = True
    task: Task
    quick_task: Task
    repeats = 1
    warm_up = False
    memory = False

    @classmethod
    def left_out(cls):
        return reason_to_leave_out()

    def make_data(self):
        return network_features(self.quick_task if self.quick else self.task)

    def ours(self, data):
        train, test = data.all_layers
        return LayerRidgeClassifier(random_state=0).fit(train, data.y[0]).predict_proba(test)

    def thesis(self, data):
        train, test = data.flat
        return layer_ridge(train, data.y[0], test).proba

    def stacked(self, data):
        train, test = data.flat
        model = LayerRidgeClassifier(weights="stacked", kernel="linear", random_state=0)
        return model.fit(train, data.y[0]).predict_proba(test)

    def logistic_top(self, data):
        train, test = data.top
        return logistic().fit(train, data.y[0]).predict_proba(test)

    def ridge_top(self, data):
        model = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(0, 6, 13)))
        train, test = data.top
        return model.fit(train, data.y[0]).decision_function(test)

    def rbf_pixels(self, data):
        train, test = (images.reshape(len(images), -1) / np.float32(255) for images in data.images)
        model = LayerRidgeClassifier(gamma="median", layer_rank=None, random_state=0)
        return model.fit(train, data.y[0]).predict_proba(test)

    def rbf_ensemble_pixels(self, data):
        """Ridge on pixels with a sum of Gaussian kernels of many widths, weighted by alignment (eq. 3.5)."""
        train, test = (images.reshape(len(images), -1) / np.float32(255) for images in data.images)
        return rbf_ensemble(train, data.y[0], test).scores

    def score(self, data, scores):
        truth = data.y[1]
        accuracy = float(np.mean(np.argmax(scores, axis=1) == truth))
        measured = {"accuracy": accuracy, "error": 1 - accuracy}
        if np.allclose(scores.sum(axis=1), 1, atol=1e-4) and scores.min() >= 0:
            classes = np.arange(scores.shape[1])
            measured["ece"] = expected_calibration_error(truth, scores, classes=classes)
        return measured
