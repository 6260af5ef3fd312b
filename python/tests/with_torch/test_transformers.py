"""The callback of Trainer: when it averages, with which weight, and what lands in the model."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("peft")
pytest.importorskip("transformers")

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers import TrainerCallback as Callback

import ciphergram as cg
from ciphergram.transformers import FederatedCallback

EXAMPLES = 11
Tensors = Mapping[str, Any]


class Federation:
    """A client that seals what it is given, and opens the sum of it and of two still sites."""

    def __init__(self, still: float = 0.25, still_weight: int = 4) -> None:
        self.keys = cg.keygen("ckks-sum", clients=3, min_clients=3)
        self.still, self.still_weight = still, still_weight
        self.sent: list[tuple[dict[str, torch.Tensor], int]] = []
        self.opened: list[cg.Opened] = []

    def mean(self, tensors: Tensors, *, weight: int) -> cg.Opened:
        self.sent.append(({name: value.clone() for name, value in tensors.items()}, weight))
        still = {name: torch.full_like(value, self.still) for name, value in tensors.items()}
        updates = [(tensors, weight), (still, self.still_weight), (still, self.still_weight)]
        contributions = [
            self.keys.secret.encrypt(update, ranges=4.0, weight=own, max_weight=64, client=number)
            for number, (update, own) in enumerate(updates)
        ]
        self.opened.append(self.keys.secret.decrypt(cg.aggregate(contributions, self.keys.public)))
        return self.opened[-1]


def adapted(dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    set_seed(3)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=16)).to(dtype)
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], **options)
    return get_peft_model(model, lora, autocast_adapter_dtype=False)


def train(model: Any, folder: Path, callbacks: list[Any], **options: Any) -> Trainer:
    rows = torch.arange(EXAMPLES * 8).reshape(EXAMPLES, 8) % 32
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    arguments = TrainingArguments(**(settings | options))
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks)
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("every", "accumulation", "weights"),
    [
        (2, 1, [4, 4, 3]),  # six batches an epoch, of which the last has one example
        (4, 1, [8, 3]),  # what is left over is averaged at the end
        (100, 1, [11]),
        (1, 3, [6, 5]),  # steps, not micro-batches
        (2, 3, [11]),
    ],
)
def test_a_mean_every_few_steps_weighs_the_examples(
    tmp_path: Path, every: int, accumulation: int, weights: list[int]
) -> None:
    federation = Federation()
    callback = FederatedCallback(federation, every=every)
    train(
        adapted(),
        tmp_path,
        [callback],
        num_train_epochs=1,
        gradient_accumulation_steps=accumulation,
    )
    assert [weight for _, weight in federation.sent] == weights
    assert callback.rounds == len(weights)
    assert callback.mean is federation.opened[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_model_holds_the_mean_in_place(tmp_path: Path, dtype: torch.dtype) -> None:
    federation = Federation()
    model = adapted(dtype)
    places = {name: value.data_ptr() for name, value in model.named_parameters()}
    base = {name: value.clone() for name, value in model.named_parameters() if "lora" not in name}
    train(model, tmp_path, [FederatedCallback(federation, every=3)], max_steps=6)
    assert {name: value.data_ptr() for name, value in model.named_parameters()} == places
    assert all(torch.equal(value, model.get_parameter(name)) for name, value in base.items())
    (update, weight), mean = federation.sent[-1], federation.opened[-1]
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    assert own.keys() == mean.keys() == update.keys()
    step = 4.0 / (2**15 - 1)
    for name, value in own.items():
        assert value.dtype == update[name].dtype == dtype
        still = 2 * federation.still_weight
        total = weight + still
        exact = (update[name].double() * weight + federation.still * still) / total
        bound = 3 * 64 / total * step + torch.finfo(dtype).eps
        assert (value.double() - exact).abs().max() <= bound
        assert np.array_equal(value.float().numpy(), mean[name].astype(np.float32))


def test_training_goes_on_from_the_mean(tmp_path: Path) -> None:
    federation = Federation(still=0.0)
    train(adapted(), tmp_path, [FederatedCallback(federation, every=1)], max_steps=3)
    for (update, _), mean in zip(federation.sent[1:], federation.opened, strict=False):
        moved = max(
            float(np.abs(value.numpy() - mean[name]).max()) for name, value in update.items()
        )
        assert 0 < moved < 0.05  # an optimiser's step of 0.01 from the mean, not from its own


class Moments(Callback):
    """Notes whether the optimiser has moments, after the federated callback had its turn."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def on_step_end(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any
    ) -> None:
        self.seen.append(bool(optimizer.state))


@pytest.mark.parametrize(("what", "expected"), [("keep", [True] * 4), ("reset", [True, False] * 2)])
def test_optimizer_state(tmp_path: Path, what: str, expected: list[bool]) -> None:
    moments = Moments()
    callback = FederatedCallback(Federation(), every=2, optimizer_state=what)
    train(adapted(), tmp_path, [callback, moments], max_steps=4)
    assert moments.seen == expected


def test_a_checkpoint_holds_the_mean(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    federation = Federation()
    callback = FederatedCallback(federation, every=2)
    train(adapted(), tmp_path, [callback], max_steps=4, save_strategy="steps", save_steps=2)
    saved = load_file(tmp_path / "checkpoint-2" / "adapter_model.safetensors")
    assert saved.keys() == federation.opened[0].keys()
    assert all(np.array_equal(value, federation.opened[0][name]) for name, value in saved.items())


def test_examples_of_an_evaluation_do_not_count(tmp_path: Path) -> None:
    federation = Federation()
    model = adapted()
    callback = FederatedCallback(federation, every=2)

    class Evaluates(Callback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            model.eval()
            model(input_ids=torch.zeros(5, 3, dtype=torch.long))
            model.train()

    train(model, tmp_path, [callback, Evaluates()], max_steps=4)
    assert [weight for _, weight in federation.sent] == [4, 4]
    before = callback._examples
    model(input_ids=torch.zeros(5, 3, dtype=torch.long))
    assert callback._examples == before  # nothing is counted once training ended


def test_other_adapters_are_left_alone(tmp_path: Path) -> None:
    model = adapted()
    model.add_adapter("second", LoraConfig(r=2, target_modules=["q_proj"]))
    other = {n: v.clone() for n, v in model.named_parameters() if ".second." in n}
    assert other
    train(model, tmp_path, [FederatedCallback(Federation(), every=2)], max_steps=2)
    assert all(torch.equal(value, model.get_parameter(name)) for name, value in other.items())


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2"])
def test_every_is_a_number_of_steps(every: Any) -> None:
    with pytest.raises(cg.ParameterError, match="every"):
        FederatedCallback(Federation(), every=every)


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(cg.ParameterError, match="optimizer_state"):
        FederatedCallback(Federation(), every=1, optimizer_state="average")
    plain = adapted().unload()
    with pytest.raises(cg.ParameterError, match=r"not a peft\.PeftModel"):
        train(plain, tmp_path, [FederatedCallback(Federation(), every=1)], max_steps=1)
    with pytest.raises(cg.ParameterError, match="'other'"):
        train(
            adapted(), tmp_path, [FederatedCallback(Federation(), 1, adapter="other")], max_steps=1
        )


def test_a_failed_round_ends_training_and_leaves_the_adapter(tmp_path: Path) -> None:
    class Broken(Federation):
        def mean(self, tensors: Tensors, *, weight: int) -> cg.Opened:
            super().mean(tensors, weight=weight)
            raise cg.TooFew("too few", found=1, min_clients=3)

    federation, model = Broken(), adapted()
    with pytest.raises(cg.TooFew):
        train(model, tmp_path, [FederatedCallback(federation, every=1)], max_steps=3)
    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    assert all(torch.equal(value, federation.sent[0][0][name]) for name, value in own.items())


def test_three_sites_hold_one_adapter(tmp_path: Path) -> None:
    cg.keygen("ckks-sum", clients=3, min_clients=3).save(tmp_path / "keys")
    models = [adapted() for _ in range(3)]
    with cg.Server(tmp_path / "keys" / "public.json") as server, ThreadPoolExecutor(3) as pool:

        def site(number: int) -> tuple[int, cg.Opened]:
            key = tmp_path / "keys" / "secret.json"
            with cg.Client(server.address, key, number=number) as client:
                callback = FederatedCallback(client, every=2)
                train(models[number], tmp_path / str(number), [callback], max_steps=4, seed=number)
            assert isinstance(callback.mean, cg.Opened)
            return callback.rounds, callback.mean

        results = list(pool.map(site, range(3)))
    for (rounds, mean), model in zip(results, models, strict=True):
        assert rounds == 2
        assert mean.contributors == [0, 1, 2]
        own = get_peft_model_state_dict(model, save_embedding_layers=False)
        assert all(np.array_equal(value, results[0][1][name]) for name, value in own.items())
