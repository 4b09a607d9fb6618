"""Between NumPy and torch: rows, weights and the outputs of stacked networks as tensors."""

from scipy import sparse

from manylens.modules.networks import StackedNetworks, scaled


def import_torch(purpose="Networks are trained"):
    """The torch module, or one sentence on how to get it.

    Parameters
    ----------
    purpose : str
        What is done with it, for the sentence.

    Returns
    -------
    module
        The package `torch`.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{purpose} with PyTorch: pip install 'manylens[torch]'.") from error
    return torch


class TensorRows:
    """Rows less a shift and over a scale, as tensors: dense rows once, sparse ones batch by batch.

    Parameters
    ----------
    rows : ndarray or CSR matrix, shape (n, d)
        Rows.
    shift, scale : ndarray or float
        (rows - shift) / scale is what networks see.
    device : str
        Where tensors live.
    """

    def __init__(self, rows, shift, scale, device):
        self.rows, self.shift, self.scale, self.device = rows, shift, scale, device
        self._whole = None if sparse.issparse(rows) else self._tensor(rows)

    def __len__(self):
        return self.rows.shape[0]

    def _tensor(self, rows):
        torch = import_torch()
        return torch.as_tensor(scaled(rows, self.shift, self.scale), device=self.device)

    def __getitem__(self, index):
        return self._tensor(self.rows[index]) if self._whole is None else self._whole[index]


def as_parameters(networks, like):
    """Weights and biases of networks in turn, as tensors that are trained.

    Parameters
    ----------
    networks : StackedNetworks
        M networks.
    like : Tensor
        Whose device and precision are taken.

    Returns
    -------
    list of Tensor
        Weights (M, in, out) and biases (M, 1, out), layer by layer.
    """
    torch = import_torch()
    pairs = zip(networks.weights, (b[:, None] for b in networks.biases), strict=True)
    return [
        torch.tensor(array, device=like.device, dtype=like.dtype, requires_grad=True)
        for pair in pairs
        for array in pair
    ]


def as_networks(parameters, activations):
    """The inverse of `as_parameters`.

    Parameters
    ----------
    parameters : list of Tensor
        Weights and biases in turn.
    activations : list of str
        What follows each layer.

    Returns
    -------
    StackedNetworks
        On NumPy arrays.
    """
    arrays = [p.detach().cpu().numpy() for p in parameters]
    return StackedNetworks(arrays[::2], [b[:, 0] for b in arrays[1::2]], list(activations))


def forward(parameters, activations, rows):
    """Outputs of all networks, one matrix product a layer.

    Parameters
    ----------
    parameters : list of Tensor
        Weights and biases in turn.
    activations : list of str
        What follows each layer.
    rows : Tensor, shape (n, d)
        The same for all networks.

    Returns
    -------
    Tensor, shape (M, n, Q)
        Outputs.
    """
    torch = import_torch()
    apply = {"relu": torch.relu, "tanh": torch.tanh, "logistic": torch.sigmoid, "identity": None}
    M, d, width = parameters[0].shape
    # All networks see the same rows: the first layer is one product with the weights side by side.
    side_by_side = parameters[0].transpose(0, 1).reshape(d, M * width)
    values = (rows @ side_by_side).reshape(-1, M, width).transpose(0, 1) + parameters[1]
    for layer, name in enumerate(activations):
        if layer:
            values = torch.baddbmm(parameters[2 * layer + 1], values, parameters[2 * layer])
        if apply[name] is not None:
            values = apply[name](values)
    return values
