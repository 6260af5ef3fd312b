"""A site's training, with FLARE's client API: softmax regression on digits, in numpy.

It is the same file whether the job is encrypted or not.
"""

from __future__ import annotations

import numpy as np
import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.np.constants import NPConstants
from sklearn.datasets import load_digits

SITES = 3
EPOCHS = 20
RATE = 0.5


def data() -> tuple[np.ndarray, np.ndarray]:
    """Returns pixels of all images, [1797, 65] with a column of ones, and their labels, [1797]."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels = np.hstack([images / 16, np.ones((len(images), 1))]).astype(np.float32)
    return pixels[order], labels[order]


def share(site: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images and labels of one site: sites have shares of different sizes."""
    pixels, labels = data()
    cuts = [0, 300, 900, 1500]
    index = int(site.removeprefix("site-")) - 1
    return pixels[cuts[index] : cuts[index + 1]], labels[cuts[index] : cuts[index + 1]]


def probabilities(weights: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Returns the probabilities of the ten digits, [images, 10]."""
    scores = pixels @ weights
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def train(weights: np.ndarray, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns weights, [65, 10], after some steps of gradient descent."""
    wanted = np.eye(10, dtype=np.float32)[labels]
    for _ in range(EPOCHS):
        slope = pixels.T @ (probabilities(weights, pixels) - wanted) / len(labels)
        weights = weights - np.float32(RATE) * slope
    return weights


def accuracy(weights: np.ndarray) -> float:
    """Returns the share of right answers on the 297 images that no site trains on."""
    pixels, labels = data()
    return float((probabilities(weights, pixels[1500:]).argmax(axis=1) == labels[1500:]).mean())


def main() -> None:
    flare.init()
    pixels, labels = share(flare.get_site_name())
    while flare.is_running():
        model = flare.receive()
        weights = np.asarray(model.params[NPConstants.NUMPY_KEY], dtype=np.float32)
        trained = train(weights, pixels, labels)
        flare.send(
            FLModel(
                params={NPConstants.NUMPY_KEY: trained},
                metrics={"accuracy": accuracy(weights)},
                meta={"NUM_STEPS_CURRENT_ROUND": len(labels)},
            )
        )


if __name__ == "__main__":
    main()
