"""Which feature map represents a kernel: by name, or chosen."""

from manylens.kernels.feature_maps import ExactMap, FeatureMap, LinearMap, NystroemMap
from manylens.kernels.fourier import FourierMap
from manylens.kernels.kernels import Linear, Precomputed
from manylens.kernels.sketched import CountSketchMap


def make_feature_map(feature_map, kernel, X, rank=1000, landmarks="uniform", random_state=None):
    """A feature map from a name, or a copy of the one given.

    "auto" takes the cheapest map that is exact, and landmarks where none is: the input itself for the linear
    kernel (while d <= n or d <= rank), every row as a landmark while n <= rank, `rank` landmarks beyond.
    Landmarks that are asked for by name or given are always used.

    Parameters
    ----------
    feature_map : {"auto", "exact", "nystroem", "fourier", "linear"} or FeatureMap
        Which; a map given without a kernel or seed of its own gets those given here.
    kernel : Kernel
        The kernel that the map is to represent.
    X : ndarray or CSR matrix, shape (n, d)
        Rows, for "auto" to count.
    rank : int
        Number of landmarks or Fourier features.
    landmarks : str or array
        As in `NystroemMap`, or "count-sketch" for signed sums of rows (`CountSketchMap`).
    random_state : int, RandomState or None
        Source of landmarks and frequencies.

    Returns
    -------
    FeatureMap
        Not fitted.
    """
    if isinstance(feature_map, FeatureMap):
        own = feature_map.get_params(deep=False)
        defaults = {"kernel": kernel, "random_state": random_state}
        own.update({name: value for name, value in defaults.items() if name in own and own[name] is None})
        return type(feature_map)(**own)
    n, d = X.shape
    if feature_map == "auto":
        if not (isinstance(landmarks, str) and landmarks == "uniform"):
            feature_map = "nystroem"
        elif isinstance(kernel, Linear) and d <= max(n, rank):
            feature_map = "linear"
        elif isinstance(kernel, Precomputed) or not kernel.has_landmarks or n <= rank:
            feature_map = "exact"
        else:
            feature_map = "nystroem"
    if feature_map == "linear":
        if not isinstance(kernel, Linear):
            others = "'exact', 'nystroem' or 'fourier'" if kernel.has_landmarks else "'exact'"
            raise ValueError(
                f"feature_map='linear' is the linear kernel's; {type(kernel).__name__} needs {others}."
            )
        return LinearMap()
    if feature_map == "exact":
        return ExactMap(Linear(centered=True) if isinstance(kernel, Linear) else kernel, random_state)
    if feature_map == "nystroem" and isinstance(landmarks, str) and landmarks == "count-sketch":
        return CountSketchMap(kernel, rank, random_state=random_state)
    if feature_map == "nystroem":
        return NystroemMap(kernel, rank, landmarks, random_state)
    if feature_map == "fourier":
        return FourierMap(kernel, rank, random_state=random_state)
    raise ValueError(
        f"feature_map={feature_map!r} is unknown: give 'auto', 'exact', 'nystroem', 'fourier', 'linear' or a "
        "map of manylens.kernels."
    )
