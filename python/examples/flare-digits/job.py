"""FedAvg on scikit-learn's digits, with three sites in NVIDIA FLARE's simulator."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe.sim_env import SimEnv

import ciphergram as cg

HERE = Path(__file__).resolve().parent


def recipe(rounds: int, keys: Path | None) -> NumpyFedAvgRecipe:
    """Returns the job, encrypted where there are keys."""
    public = None if keys is None else cg.flare.Aggregator(str(keys / "public.json"))
    job = NumpyFedAvgRecipe(
        name="digits-plain" if keys is None else "digits",
        model=np.zeros((65, 10)).tolist(),
        min_clients=3,
        num_rounds=rounds,
        train_script=str(HERE / "train.py"),
        aggregator=public,
    )
    if keys is not None:
        # All sites of a simulation have the folder of all members, of which each takes its own file.
        job.add_client_input_filter(cg.flare.Decrypt(str(keys)), tasks=["train"])
        job.add_client_output_filter(
            cg.flare.Encrypt(str(keys), max_weight=600, ranges=4.0), tasks=["train"]
        )
    return job


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--plain", action="store_true", help="average in plain, as FLARE does by itself"
    )
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--keys",
        type=Path,
        default=HERE / "keys",
        help="folder of the keys; made if it is not there",
    )
    options.add_argument("--workspace", type=Path, default=HERE / "workspace")
    chosen = options.parse_args()
    keys = None if chosen.plain else chosen.keys.resolve()
    if keys is not None and not keys.exists():
        cg.keygen_members(keys, clients=3, min_clients=3)
    recipe(chosen.rounds, keys).run(
        SimEnv(num_clients=3, workspace_root=str(chosen.workspace.resolve()))
    )


if __name__ == "__main__":
    main()
