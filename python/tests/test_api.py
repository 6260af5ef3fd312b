"""Encrypting, summing and opening, held to exact arithmetic in numpy."""

from __future__ import annotations

import errno
import itertools
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ciphergram as cg

RNG = np.random.default_rng(20)


def updates(clients: int, scale: float = 0.1) -> list[dict[str, np.ndarray]]:
    """Return an update of each client: two tensors, of different types."""
    return [
        {
            "w": (RNG.normal(size=(17, 31)) * scale).astype(np.float32),
            "b": RNG.normal(size=7) * scale,
        }
        for _ in range(clients)
    ]


def bound(ranges: cg.Ranges, name: str, weights: list[int], bits: int) -> float:
    """Return the largest error of a mean of values that were not clipped: a step of each client."""
    steps = 2 ** (bits - 1) - 1
    return ranges[name] / steps * len(weights) * ranges.max_weight / sum(weights)


@pytest.mark.parametrize("scheme", ["ckks-sum", "paillier-2048"])
@pytest.mark.parametrize("bits", [8, 16, 20])
def test_a_mean_is_within_a_step_of_the_exact_one(scheme: str, bits: int) -> None:
    if scheme.startswith("paillier") and bits != 16:
        pytest.skip("a key of Paillier takes seconds")
    keys = cg.keygen(scheme, clients=4, bits=bits)
    mine, weights = updates(3), [120, 7, 64]
    ranges = cg.merge_ranges([cg.ranges(x, weight=w) for x, w in zip(mine, weights)])
    sealers: list[Any] = list(keys.clients) or [keys.secret] * 3
    contributions = [
        sealers[i].encrypt(
            x, ranges=ranges, weight=w, round=7, **({} if keys.clients else {"client": i})
        )
        for i, (x, w) in enumerate(zip(mine, weights))
    ]
    opened = keys.decrypt(cg.aggregate(contributions, keys.public))
    total = keys.decrypt(cg.aggregate(contributions, keys.public), total=True)
    assert opened.contributors == [0, 1, 2]
    assert opened.round == 7 and not opened.total and total.total
    for name, first in mine[0].items():
        exact = sum(x[name].astype(np.float64) * w for x, w in zip(mine, weights))
        assert opened[name].dtype == first.dtype and opened[name].shape == first.shape
        limit = bound(ranges, name, weights, bits) + np.finfo(first.dtype).eps
        assert np.abs(opened[name] - exact / sum(weights)).max() <= limit
        assert np.abs(total[name] - exact).max() <= (limit + 1e-6) * sum(weights)


def test_however_contributions_are_grouped_their_sum_is_the_same() -> None:
    keys = cg.keygen(clients=5)
    cts = [keys.encrypt(x, ranges=1.0, client=i, round=0) for i, x in enumerate(updates(5))]
    whole = cg.aggregate(cts, keys.public)
    expected = keys.decrypt(whole)
    orders = [
        cts[0] + cts[1] + cts[2] + cts[3] + cts[4],
        (cts[0] + cts[1]) + (cts[2] + (cts[3] + cts[4])),
        cg.aggregate([cts[4], cg.aggregate(cts[1:4], keys.public), bytes(cts[0])], keys.public),
    ]
    assert orders[0] == orders[1] == whole
    # In another order of contributors it is another sum of the round, though of the same.
    assert orders[2].contributors == whole.contributors and orders[2] != whole
    again = keys.decrypt(orders[1])
    assert all(np.array_equal(again[name], expected[name]) for name in expected)
    with pytest.raises(cg.SecondSum):
        keys.decrypt(cg.aggregate(cts[:4], keys.public))


def test_a_refused_contribution_leaves_the_sum_as_it_was() -> None:
    keys, other = cg.keygen(clients=4), cg.keygen(clients=4)
    x = updates(1)[0]
    cts = [keys.encrypt(x, ranges=1.0, client=i, round=3) for i in range(3)]
    damaged = bytearray(bytes(cts[2]))
    damaged[-100] ^= 1
    summing = cg.Summing(keys.public).add(cts[0])
    refused = [
        (cg.BadFrame, bytes(damaged)),
        (cg.BadFrame, bytes(cts[2])[:-1]),
        (cg.BadFrame, b""),
        (cg.DuplicateClient, cts[0]),
        (cg.DuplicateClient, cg.Summing(keys.public).add(cts[0]).finish()),
        (cg.KeyMismatch, other.encrypt(x, ranges=1.0, client=1, round=3)),
        (cg.RoundMismatch, keys.encrypt(x, ranges=1.0, client=3, round=4)),
        (cg.RangesDiffer, keys.encrypt(x, ranges=2.0, client=3, round=5)),
        (cg.LayoutError, keys.encrypt({"w": x["w"]}, ranges=1.0, client=3, round=6)),
    ]
    for error, part in refused[:6]:
        with pytest.raises(error):
            summing.add(part)
    with pytest.raises(cg.RoundMismatch):
        summing.add(refused[6][1])
    for _, part in refused[7:]:
        with pytest.raises(cg.CiphergramError):
            summing.add(part)
    assert len(summing) == 1
    opened = keys.decrypt(summing.add(cts[1]).add(cts[2]).finish())
    assert np.abs(opened["b"] - x["b"]).max() < 1e-3
    with pytest.raises(cg.ParameterError):
        summing.add(cts[0])


@pytest.mark.parametrize("saved", [False, True])
def test_threads_that_take_the_next_round_have_each_its_own(keys: cg.Keys, tmp_path: Path, saved: bool) -> None:
    if saved:
        keys.save(tmp_path / "keys")
    update = {"w": np.ones(1000, np.float32)}
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: keys.encrypt(update, ranges=1.0, client=0), range(24)))
    assert sorted(part.round for part in parts) == list(range(24))
    # What is refused takes none.
    with pytest.raises(cg.NotFinite):
        keys.encrypt({"w": np.full(1000, np.nan, np.float32)}, ranges=1.0, client=0)
    assert keys.encrypt(update, ranges=1.0, client=0).round == 24


def test_rounds_ascend_and_a_second_sum_is_not_opened(tmp_path: Path) -> None:
    keys = cg.keygen(clients=3)
    x = {"w": np.zeros(3, np.float32)}
    assert keys.encrypt(x, ranges=1.0, client=0).round == 0
    assert keys.encrypt(x, ranges=1.0, client=0).round == 1
    with pytest.raises(cg.RoundOver) as error:
        keys.encrypt(x, ranges=1.0, client=0, round=1)
    assert (error.value.client, error.value.round, error.value.last) == (0, 1, 1)
    # The record goes with the key.
    keys.save(tmp_path / "keys")
    again = cg.load_keys(tmp_path / "keys")
    with pytest.raises(cg.RoundOver):
        again.encrypt(x, ranges=1.0, client=0, round=1)
    assert again.encrypt(x, ranges=1.0, client=0).round == 2
    # The first object goes by the same record from then on.
    assert keys.encrypt(x, ranges=1.0, client=0).round == 3
    with pytest.raises(cg.Exists):
        keys.save(tmp_path / "keys")


def test_keys_are_saved_and_loaded_by_their_kinds(tmp_path: Path) -> None:
    keys = cg.keygen("paillier-2048", clients=3)
    keys.save(tmp_path / "keys")
    assert isinstance(cg.load_keys(tmp_path / "keys"), cg.Keys)
    secret = cg.load_keys(tmp_path / "keys" / "secret.json")
    public = cg.load_keys(str(tmp_path / "keys" / "public.json"))
    client = cg.load_keys(tmp_path / "keys" / "clients" / "2.json")
    assert (type(secret), type(public), type(client)) == (cg.SecretKey, cg.PublicKey, cg.ClientKey)
    assert secret.public == public == client.public == keys.public
    assert client.number == 2 and client.job == public.job == keys.job
    for file in ["secret.json", "clients/0.json"]:
        assert (tmp_path / "keys" / file).stat().st_mode & 0o077 == 0
    for file in ["secret.json", "clients/2.json"]:
        texts = (tmp_path / "keys" / file).read_text().split('"')
        secrets = [text for text in texts if len(text) > 20 and text != keys.public.id]
        assert secrets
        for shown in [repr(keys), repr(secret), repr(client), str(secret)]:
            assert not any(text[:12] in shown for text in secrets)


def test_every_file_of_a_key_has_its_record(tmp_path: Path) -> None:
    keys, x = cg.keygen("paillier-2048", clients=3), {"w": np.zeros(3)}
    keys.clients[0].encrypt(x, ranges=1.0, round=4)
    keys.save(f"{tmp_path}/a/b/")
    for again in (
        cg.load_keys(tmp_path / "a" / "b").clients[0],
        cg.load_keys(tmp_path / "a" / "b" / "clients" / "0.json"),
        keys.clients[0],
    ):
        with pytest.raises(cg.RoundOver):
            again.encrypt(x, ranges=1.0, round=4)
    assert keys.clients[1].encrypt(x, ranges=1.0).round == 0
    # A second file of one key knows what the first one sealed.
    shared = cg.keygen(clients=3).secret
    shared.save(tmp_path / "one.json")
    shared.encrypt(x, ranges=1.0, client=0, round=2)
    shared.save(tmp_path / "two.json")
    with pytest.raises(cg.RoundOver):
        cg.load_keys(tmp_path / "two.json").encrypt(
            x, ranges=1.0, client=0, round=2, job=shared.job
        )
    assert (tmp_path / "two.json.ledger").read_text() == (tmp_path / "one.json.ledger").read_text()


def test_a_ledger_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, ledger = {"w": np.zeros(3)}, tmp_path / "use"
    cg.keygen(clients=3).save(tmp_path / "keys")
    keys = cg.load_keys(tmp_path / "keys", ledger=ledger)
    assert keys.encrypt(x, ranges=1.0, client=0).round == 0
    monkeypatch.setenv("CIPHERGRAM_LEDGER", str(ledger))
    secret = cg.load_keys(tmp_path / "keys" / "secret.json")
    assert secret.encrypt(x, ranges=1.0, client=0).round == 1
    assert not (tmp_path / "keys" / "secret.json.ledger").exists()
    lost = cg.load_keys(tmp_path / "keys", ledger=tmp_path / "none" / "use")
    with pytest.raises(cg.FileError, match="ledger=") as error:
        lost.encrypt(x, ranges=1.0, client=0)
    assert error.value.errno == errno.ENOENT


def test_files_are_replaced_by_their_own_kind_alone(tmp_path: Path) -> None:
    keys, x = cg.keygen(clients=3), {"w": np.zeros(3)}
    ct = keys.encrypt(x, ranges=1.0, client=0)
    (tmp_path / "note.txt").write_text("mine")
    for path in ("note.txt", "secret.json"):
        if path == "secret.json":
            keys.secret.save(tmp_path / path)
        before = (tmp_path / path).read_bytes()
        with pytest.raises(cg.Exists):
            cg.save(ct, tmp_path / path)
        with pytest.raises(cg.Exists):
            ct.ranges.save(tmp_path / path)
        assert (tmp_path / path).read_bytes() == before
    for _ in range(2):
        cg.save(ct, tmp_path / "a.cgm")
        ct.ranges.save(tmp_path / "ranges.json")
    with pytest.raises(cg.BadFrame):
        cg.save(b"hello", tmp_path / "b.cgm")  # type: ignore[arg-type]
    for odd in (np.zeros(3), np.zeros((4, 4), np.uint8)[::2, ::2]):
        with pytest.raises(cg.BadFrame):
            cg.loads(odd)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["a.cgm", "note.txt", "ranges.json", "secret.json", "secret.json.ledger"]


def test_secrets_do_not_pickle() -> None:
    keys = cg.keygen("paillier-2048", clients=3)
    for secret in [keys, keys.secret, keys.clients[0]]:
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(secret)


def test_public_keys_pickle_with_their_jobs() -> None:
    for scheme in ["ckks-sum", "paillier-2048"]:
        public = cg.keygen(scheme, clients=3).public
        copy = pickle.loads(pickle.dumps(public))
        assert copy == public and copy.job == public.job and hash(copy) == hash(public)


def test_contributions_and_sums_are_bytes_and_pickle(tmp_path: Path) -> None:
    keys = cg.keygen(clients=3)
    cts = [keys.encrypt(x, ranges=1.0, client=i, round=0) for i, x in enumerate(updates(3))]
    total = cg.aggregate(cts, keys.public)
    for item in [cts[0], total]:
        assert pickle.loads(pickle.dumps(item)) == item
        assert cg.loads(bytes(item)) == cg.loads(memoryview(item), keys) == item
        view = memoryview(item)
        assert view.readonly and view.nbytes == len(item) == item.nbytes and bytes(view) == bytes(item)
        cg.save(item, tmp_path / "file.cgm")
        assert cg.load(tmp_path / "file.cgm", keys.public) == item
    assert cts[0].clipped == {"b": 0, "w": 0} and cg.loads(bytes(cts[0])).clipped is None
    # A view keeps what it shows.
    view = memoryview(keys.encrypt(updates(1)[0], ranges=1.0, client=0, round=1))
    assert cg.loads(view).round == 1
    # Without a key nobody knows how to add.
    with pytest.raises(cg.KeyMismatch):
        cg.loads(bytes(cts[0])) + cts[1]
    assert cg.loads(bytes(cts[0]), keys) + cts[1] == cts[0] + cts[1]


def test_terms_are_agreed_without_a_network() -> None:
    keys = cg.keygen(clients=4)
    xs, weights = updates(3), [120, 7, 64]
    announced = [
        keys.propose(x, client=i, weight=w) for i, (x, w) in enumerate(zip(xs, weights))
    ]
    # What a proposal shows are powers of two.
    assert [a.ranges.max_weight for a in announced] == [128, 8, 64]
    assert all(np.log2(r) % 1 == 0 for a in announced for r in a.ranges.values())
    sent = [cg.Announcement.from_bytes(bytes(a), keys.public, a.client) for a in announced]
    terms = cg.RoundTerms.from_bytes(bytes(cg.join_round(sent, keys.public)), keys.public)
    assert terms.participants == [0, 1, 2] and terms.ranges.max_weight == 128
    cts = [
        keys.encrypt(x, client=i, weight=w, terms=terms, announcement=a)
        for i, (x, w, a) in enumerate(zip(xs, weights, announced))
    ]
    opened = keys.decrypt(cg.aggregate(cts, keys.public))
    exact = sum(x["w"].astype(np.float64) * w for x, w in zip(xs, weights)) / sum(weights)
    assert np.abs(opened["w"] - exact).max() <= bound(terms.ranges, "w", weights, 16) + 1e-7
    # No client contributes twice to it, nor to a round that it is not listed in.
    with pytest.raises(cg.BadTerms):
        keys.encrypt(xs[0], client=3, terms=terms, announcement=announced[0])
    with pytest.raises(cg.RoundOver):
        keys.encrypt(xs[0], client=0, weight=120, terms=terms, announcement=announced[0])


def test_terms_below_a_client_s_own_proposal_are_refused() -> None:
    keys = cg.keygen(clients=4)
    small, large = {"w": np.full(3, 0.01)}, {"w": np.full(3, 0.9)}
    own = keys.propose(large, client=0)
    lie = cg.join_round([keys.propose(small, client=i) for i in range(3)], keys.public)
    with pytest.raises(cg.BadTerms):
        keys.encrypt(large, client=0, terms=lie, announcement=own)


def test_weights_beside_ranges_in_numbers_are_of_the_jobs_largest() -> None:
    keys = cg.keygen(clients=3)
    x = {"w": np.array([0.5, -0.25, 1.0])}
    with pytest.warns(cg.CiphergramWarning, match=r"weights up to 100000 leave [67] of 16 bits"):
        parts = [keys.encrypt(x, ranges=1.0, client=at, weight=each) for at, each in enumerate((130, 120, 150))]
    # Nothing that travels in clear tells of a client's own.
    assert {part.ranges.max_weight for part in parts} == {100_000}
    mean = keys.decrypt(cg.aggregate(parts, keys.public))
    np.testing.assert_allclose(mean["w"], x["w"], atol=3 * 100_000 / 400 / 32767)
    # Said here or of the job, the largest weight is as fine as values are; a whole float is whole.
    for keys, options in ((keys, {"max_weight": 200}), (cg.keygen(clients=3, max_weight=200), {})):
        given = enumerate((120.0, np.int64(80), 200))
        parts = [keys.encrypt({"w": x["w"] / (at + 1)}, ranges=1.0, client=at, weight=w, **options) for at, w in given]
        mean = keys.decrypt(cg.aggregate(parts, keys.public))
        np.testing.assert_allclose(mean["w"], x["w"] * (120 + 80 / 2 + 200 / 3) / 400, atol=3 * 200 / 400 / 32767)
    # Where nobody weighs, all weigh alike.
    assert keys.encrypt(x, ranges=1.0, client=0).ranges.max_weight == 1


def test_jobs_bound_what_is_sealed_and_opened() -> None:
    with pytest.warns(UserWarning, match="sums of 2"):
        keys = cg.keygen(clients=3, min_clients=2, max_weight=10, max_range=0.5)
    x = {"w": np.array([0.25, -0.25])}
    with pytest.raises(cg.BeyondJob):
        keys.encrypt(x, ranges=0.6, client=0)
    with pytest.raises(cg.WeightError):
        keys.encrypt(x, ranges=0.5, weight=11, client=0)
    with pytest.raises(cg.ClientNumberError):
        keys.encrypt(x, ranges=0.5, client=3)
    two = keys.encrypt(x, ranges=0.5, client=0, round=5) + keys.encrypt(
        x, ranges=0.5, client=1, round=5
    )
    with pytest.raises(cg.TooFew) as error:
        keys.decrypt(two, job=keys.job.requiring(3))
    assert (error.value.found, error.value.min_clients) == (2, 3)
    assert np.allclose(keys.decrypt(two)["w"], x["w"], atol=1e-4)


def test_many_threads_share_a_key() -> None:
    keys, rounds = cg.keygen(clients=8, min_clients=8), 3
    x = {"w": RNG.normal(size=5000)}
    cts: list[list[Any]] = [[None] * 8 for _ in range(rounds)]

    def seal(client: int) -> None:
        for number in range(rounds):
            cts[number][client] = keys.encrypt(x, ranges=8.0, client=client, round=number)

    threads = [threading.Thread(target=seal, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for row in cts:
        opened = keys.decrypt(cg.aggregate(row, keys.public))
        assert np.abs(opened["w"] - x["w"]).max() <= 8.0 / 32767


def test_many_threads_add_to_one_sum() -> None:
    keys = cg.keygen(clients=16, min_clients=16)
    x = {"w": RNG.normal(size=200_000)}
    cts = [keys.encrypt(x, ranges=8.0, client=i, round=0) for i in range(16)]
    summing = cg.Summing(keys.public)
    threads = [threading.Thread(target=summing.add, args=(ct,)) for ct in cts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(summing) == 16
    # So do those that open, of which the ledger lets one in at a time.
    total, opened = summing.finish(), []
    threads = [
        threading.Thread(target=lambda: opened.append(keys.decrypt(total)["w"])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(opened) == 8 and all(np.array_equal(opened[0], w) for w in opened)
    assert np.abs(opened[0] - x["w"]).max() <= 8.0 / 32767


def test_threads_are_set_and_set_back() -> None:
    keys = cg.keygen(clients=3)
    for threads in (1, 3, None):
        cg.set_threads(threads)
        assert len(keys.encrypt({"w": np.zeros(9)}, ranges=1.0, client=0)) > 0
    with pytest.raises(cg.ParameterError):
        cg.set_threads(0)


def test_engines_and_devices() -> None:
    keys = cg.keygen(clients=3)
    assert cg.devices()[0].name == "cpu"
    with pytest.raises(cg.ParameterError, match="engine="):
        keys.encrypt({"w": np.zeros(3)}, ranges=1.0, client=0, engine="tpu")
    ct = keys.encrypt({"w": np.zeros(3)}, ranges=1.0, client=0, engine="auto")
    assert ct.round == 0


def test_ranges_are_shared_in_files(tmp_path: Path) -> None:
    x = {"w": np.array([3.0, -4.0]), "b": np.array(0.5)}
    own = cg.ranges(x, weight=7)
    assert dict(own.items()) == {"b": 0.5, "w": 4.0} and own.max_weight == 7
    assert own.specs == {"b": ("F64", ()), "w": ("F64", (2,))}
    own.save(tmp_path / "ranges.json")
    assert cg.Ranges.load(tmp_path / "ranges.json") == own == pickle.loads(pickle.dumps(own))
    merged = cg.merge_ranges([own, own.replace({"w": 9.0}, max_weight=3)])
    assert dict(merged.items()) == {"b": 0.5, "w": 9.0} and merged.max_weight == 7
    assert cg.ranges(x, policy="sigma:1")["w"] == pytest.approx(np.sqrt(12.5))
    assert list(cg.ranges(x, policy="fixed:0.25").values()) == [0.25, 0.25]
    for bad in ["", "max:1", "sigma", "sigma:x", "fixed:-1", "fixed:nan"]:
        with pytest.raises(cg.ParameterError):
            cg.ranges(x, policy=bad)
    with pytest.raises(cg.LayoutError):
        own.replace({"v": 1.0})


def test_values_beyond_their_range_are_clipped_and_counted() -> None:
    keys = cg.keygen(clients=3)
    x = {"w": np.array([0.5, 3.0, -3.0, 0.25])}
    cts = [keys.encrypt(x, ranges={"w": 1.0}, client=i, round=0) for i in range(3)]
    assert cts[0].clipped == {"w": 2}
    opened = keys.decrypt(cg.aggregate(cts, keys.public))
    assert np.abs(opened["w"] - [0.5, 1.0, -1.0, 0.25]).max() < 1e-4
    first = keys.encrypt(x, ranges={"w": 1.0}, clip=0.3, client=0, round=1)
    assert first.clipped == {"w": 3}


def test_every_error_pickles_with_its_fields() -> None:
    keys = cg.keygen(clients=3)
    with pytest.raises(cg.NotFinite) as error:
        keys.encrypt({"w": np.array([1.0, np.inf])}, ranges=1.0, client=0)
    copy = pickle.loads(pickle.dumps(error.value))
    assert type(copy) is cg.NotFinite and str(copy) == str(error.value)
    assert (copy.tensor, copy.index, copy.value) == ("w", 1, "inf")
    assert isinstance(copy, ValueError)
    with pytest.raises(AttributeError):
        copy.nothing
    for first, second in itertools.pairwise(sorted(cg.errors.__all__)):
        assert first != second and issubclass(getattr(cg, first), cg.CiphergramError | cg.CiphergramWarning)


def test_sum_adds_contributions(keys: cg.Keys) -> None:
    parts = [keys.encrypt({"w": np.full(2, client / 8)}, ranges=1.0, client=client) for client in range(4)]
    assert sum(parts) == cg.aggregate(parts, keys.public) == sum(parts[1:], parts[0])
    with pytest.raises(TypeError):
        sum(parts, 1)


def test_clipping_is_warned_of_once_for_a_line(keys: cg.Keys) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for client in range(4):
            keys.encrypt({"w": np.full(2, 1.5)}, ranges=1.0, client=client)
            # What was asked for is not warned of.
            keys.encrypt({"w": np.full(2, 1.5)}, ranges=1.0, clip=1.0, client=client)
    text = "values beyond their range were clipped to it: `clipped` counts them by tensor"
    assert [(w.category, str(w.message), w.filename) for w in seen] == [(cg.CiphergramWarning, text, __file__)]


def test_hints_name_what_is_there(keys: cg.Keys, tmp_path: Path) -> None:
    with pytest.raises(cg.ClientNumberError, match="or number= of Client"):
        cg.Client("127.0.0.1:7700", keys)
    with pytest.raises(cg.FileError) as error:
        cg.load_keys(tmp_path / "none")
    assert error.value.errno == errno.ENOENT and isinstance(error.value, OSError)
    assert pickle.loads(pickle.dumps(error.value)).errno == errno.ENOENT
    with pytest.raises(TypeError, match="pickle the public key, whose .job it is"):
        pickle.dumps(keys.job)
    assert pickle.loads(pickle.dumps(keys.public)).job == keys.job


def test_bytes_are_added_from_either_side() -> None:
    keys = cg.keygen(clients=3)
    parts = [keys.encrypt({"w": np.full(4, n, np.float32)}, ranges=4.0, client=n) for n in range(3)]
    total = bytes(parts[0]) + parts[1]
    assert isinstance(total, cg.Sum)
    np.testing.assert_allclose(keys.decrypt(bytes(parts[2]) + total)["w"], 1.0, atol=1e-3)
