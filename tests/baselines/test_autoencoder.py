import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA

from manylens.baselines import BaggingAutoencoder


def test_bagged_autoencoders_are_projections_and_worse_than_pca(X):
    model = BaggingAutoencoder(6, 4, random_state=0).fit(X)
    for B, A in zip(model.encoders_, model.decoders_, strict=True):
        np.testing.assert_allclose(B @ B.T, np.eye(4), atol=1e-8)
        np.testing.assert_array_equal(A, B.T)
    pca = PCA(4).fit(X)
    best = np.sum((pca.inverse_transform(pca.transform(X)) - X) ** 2)
    Z = model.split(model.transform(X))
    for m, A in enumerate(model.decoders_):
        assert np.sum((Z[:, m] @ A.T + model.mean_ - X) ** 2) > best
    overlap = np.linalg.norm(model.encoders_[0] @ model.encoders_[1].T)
    assert 0.5 * 2 < overlap < 2 - 1e-3  # similar, as samples of the same rows are, but not the same


def test_bagged_autoencoders_take_sparse_rows_with_more_columns_than_rows():
    X = sparse.random(15, 40, density=0.3, format="csr", random_state=0)
    assert BaggingAutoencoder(2, 2, random_state=0).fit(X).transform(X).shape == (15, 4)
