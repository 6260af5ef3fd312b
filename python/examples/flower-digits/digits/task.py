"""A classifier of scikit-learn's 8×8 digits in numpy: one hidden layer, trained by gradient descent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

Floats = npt.NDArray[np.float32]
Model = dict[str, Floats]
Data = tuple[Floats, npt.NDArray[np.int64]]

_HIDDEN = 32
_RATE = 0.2


def new_model() -> Model:
    """Return the model that training begins with, the same in every run."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)  # noqa: E731
    return {
        "hidden.weight": draw(64, _HIDDEN),
        "hidden.bias": np.zeros(_HIDDEN, np.float32),
        "out.weight": draw(_HIDDEN, 10),
        "out.bias": np.zeros(10, np.float32),
    }


def load(partition: int, partitions: int) -> tuple[Data, Data]:
    """Return the data of one client, to train on and to test on; clients have unlike numbers of examples."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    ends = np.cumsum(np.arange(1, partitions + 1))
    first, last = (len(labels) * (ends[partition] - [partition + 1, 0])) // ends[-1]
    middle = first + (last - first) * 4 // 5
    train, test = slice(first, middle), slice(middle, last)
    return (images[train], labels[train]), (images[test], labels[test])


def _forward(model: Model, images: Floats) -> tuple[Floats, Floats]:
    hidden = np.maximum(images @ model["hidden.weight"] + model["hidden.bias"], 0)
    scores = hidden @ model["out.weight"] + model["out.bias"]
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)


def train(model: Model, data: Data, epochs: int) -> tuple[Model, float]:
    """Return the model after some epochs, and its mean loss in the last one."""
    model = {name: values.copy() for name, values in model.items()}
    images, labels = data
    losses: list[float] = []
    for _ in range(epochs):
        losses = []
        for start in range(0, len(labels), 32):
            batch = slice(start, start + 32)
            losses.append(_step(model, images[batch], labels[batch]))
    return model, float(np.mean(losses))


def _step(model: Model, images: Floats, labels: npt.NDArray[np.int64]) -> float:
    hidden, predicted = _forward(model, images)
    rows = np.arange(len(labels))
    loss = float(-np.log(predicted[rows, labels] + 1e-9).mean())
    error = predicted
    error[rows, labels] -= 1
    error /= len(labels)
    back = (error @ model["out.weight"].T) * (hidden > 0)
    model["out.weight"] -= _RATE * (hidden.T @ error)
    model["out.bias"] -= _RATE * error.sum(axis=0)
    model["hidden.weight"] -= _RATE * (images.T @ back)
    model["hidden.bias"] -= _RATE * back.sum(axis=0)
    return loss


def test(model: Model, data: Data) -> float:
    """Return the share of digits that the model reads rightly."""
    images, labels = data
    return float((_forward(model, images)[1].argmax(axis=1) == labels).mean())
