"""Which models are refused, and by which names; groups that are too small; states of other models."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ciphergram as cg
import pytest
import torch
import torch.distributed as dist
from ciphergram.torch import Protection
from torch import nn
from torch.distributed._composable import replicate_with_fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DataParallel, DistributedDataParallel


class Idle:
    """A client that is never asked."""

    def __init__(self, clients: int = 3) -> None:
        self.job = SimpleNamespace(clients=clients, max_range=10.0)

    def mean(self, tensors: Any, **options: Any) -> Any:
        """Is not called."""
        raise AssertionError

    def stop(self) -> None:
        """Does nothing."""


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def refusal(model: Any) -> str:
    with pytest.raises(cg.ParameterError) as refused:
        cg.torch.protect(model, Idle())
    return str(refused.value)


def test_other_wrappers_are_refused_by_name() -> None:
    assert "Linear" in refusal(nn.Linear(2, 2)) and "DistributedDataParallel" in refusal(nn.Linear(2, 2))
    assert "DataParallel" in refusal(DataParallel(nn.Linear(2, 2)))
    model = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu"))
    assert "FullyShardedDataParallel" in refusal(model)
    assert "sparse" in refusal(DistributedDataParallel(nn.Embedding(3, 2, sparse=True)))
    assert "torch.compile" in refusal(torch.compile(DistributedDataParallel(nn.Linear(2, 2))))
    assert "str" in refusal("model")


def test_replicas_that_are_averaged_in_clear_are_refused() -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    fully_shard(inner[1], mesh=mesh)
    assert "1 has replicas" in refusal(fully_shard(inner, mesh=mesh["shard"]))
    assert "the model has replicas" in refusal(fully_shard(nn.Linear(2, 2), mesh=mesh))
    model = replicate_with_fsdp.replicate(nn.Linear(2, 2), mesh=mesh["replicate"])
    assert "the model has replicas" in refusal(model)


def test_opacus_is_refused_by_name() -> None:
    distributed = pytest.importorskip("opacus.distributed")
    from opacus import GradSampleModule

    wrapped = distributed.DifferentiallyPrivateDistributedDataParallel(nn.Linear(2, 2))
    assert "DifferentiallyPrivateDistributedDataParallel" in refusal(wrapped)
    assert "GradSampleModule" in refusal(GradSampleModule(nn.Linear(2, 2)))
    assert "GradSampleModule" in refusal(DistributedDataParallel(GradSampleModule(nn.Linear(2, 2))))


def test_a_model_is_protected_once() -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))
    with pytest.warns(UserWarning, match="a group of 1"), cg.torch.protect(model, Idle()):
        assert "hook" in refusal(model)


@pytest.mark.parametrize(
    "options",
    [{"weight": 0}, {"weight": 1.5}, {"weight": True}, {"clip": 0.0}, {"clip": float("nan")}],
)
def test_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(cg.ParameterError):
        cg.torch.protect(DistributedDataParallel(nn.Linear(2, 2)), Idle(), **options)


def test_states() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = {"version": 1, "rounds": 4, "clipped": 2, "residuals": {"weight": torch.ones(4)}}
        with cg.torch.protect(DistributedDataParallel(nn.Linear(2, 2)), Idle(), state=kept) as protection:
            again = pickle.loads(pickle.dumps(protection))
        assert isinstance(again, Protection)
        with cg.torch.protect(DistributedDataParallel(nn.Linear(2, 2)), Idle(), state=again) as protection:
            assert protection.rounds == 4
            assert torch.equal(protection.state_dict()["residuals"]["weight"], torch.ones(4))
        for wrong in ({}, {**kept, "version": 2}, {**kept, "residuals": 3}, {**kept, "residuals": {"weight": 3}}):
            with pytest.raises(cg.BadFrame):
                cg.torch.protect(DistributedDataParallel(nn.Linear(2, 2)), Idle(), state=wrong)
        other = {**kept, "residuals": {"elsewhere": torch.ones(4)}}
        with pytest.raises(cg.LayoutError, match="elsewhere"):
            cg.torch.protect(DistributedDataParallel(nn.Linear(2, 2)), Idle(), state=other)


def test_a_round_that_failed_leaves_what_earlier_ones_cut_off() -> None:
    class Failing(Idle):
        def mean(self, tensors: Any, **options: Any) -> Any:
            raise cg.TooFew("nobody came", found=1, min_clients=3)

    kept = {"version": 1, "rounds": 4, "clipped": 2, "residuals": {"weight": torch.ones(4)}}
    model = DistributedDataParallel(nn.Linear(2, 2))
    with cg.torch.protect(model, Failing(), state=kept) as protection:
        protection.submit("bucket", torch.zeros(4), [("weight", 4)])
        with pytest.raises(cg.TooFew):
            protection.wait()
        assert torch.equal(protection.state_dict()["residuals"]["weight"], torch.ones(4))


def test_a_state_is_readable_without_unpickling_code(tmp_path: Path) -> None:
    state = {"version": 1, "rounds": 1, "clipped": 0, "residuals": {"weight": torch.ones(4)}}
    torch.save(state, tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True)["rounds"] == 1
