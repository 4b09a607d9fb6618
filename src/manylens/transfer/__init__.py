"""Transfer: ridge regression on the layers of a network, calibration, and rows without labels."""

from typing import TYPE_CHECKING

from manylens._lazy import attach

if TYPE_CHECKING:
    from manylens.transfer.alignment_history import AlignmentHistory
    from manylens.transfer.calibration import TemperatureScaler, expected_calibration_error
    from manylens.transfer.fine_tuning import FineTuningGain, fine_tuning_gain
    from manylens.transfer.kernel_ridge import KernelRidgeCV
    from manylens.transfer.layer_ridge import LayerRidgeClassifier, LayerRidgeRegressor
    from manylens.transfer.layer_rows import LayerRows
    from manylens.transfer.layer_transfer import LayerTransfer
    from manylens.transfer.network_comparison import compare_models
    from manylens.transfer.network_layers import collect_layers
    from manylens.transfer.ridge import RidgeSearch
    from manylens.transfer.transduction import TransductionSearch, TransductiveRidgeClassifier

__all__ = [
    "AlignmentHistory",
    "FineTuningGain",
    "KernelRidgeCV",
    "LayerRidgeClassifier",
    "LayerRidgeRegressor",
    "LayerRows",
    "LayerTransfer",
    "RidgeSearch",
    "TemperatureScaler",
    "TransductionSearch",
    "TransductiveRidgeClassifier",
    "collect_layers",
    "compare_models",
    "expected_calibration_error",
    "fine_tuning_gain",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "manylens.transfer.calibration": ["TemperatureScaler", "expected_calibration_error"],
        "manylens.transfer.fine_tuning": ["FineTuningGain", "fine_tuning_gain"],
        "manylens.transfer.kernel_ridge": ["KernelRidgeCV"],
        "manylens.transfer.layer_ridge": ["LayerRidgeClassifier", "LayerRidgeRegressor"],
        "manylens.transfer.layer_rows": ["LayerRows"],
        "manylens.transfer.layer_transfer": ["LayerTransfer"],
        "manylens.transfer.network_comparison": ["compare_models"],
        "manylens.transfer.network_layers": ["collect_layers"],
        "manylens.transfer.ridge": ["RidgeSearch"],
        "manylens.transfer.alignment_history": ["AlignmentHistory"],
        "manylens.transfer.transduction": ["TransductionSearch", "TransductiveRidgeClassifier"],
    },
)
