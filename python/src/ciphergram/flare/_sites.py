"""Keys and files of a site, and what messages hold."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.dxo import MetaKey
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants

import ciphergram as cg

from .._answers import answer, decrypt, learn, opening_key, own_file, prekey

CONTRIBUTION = "ciphergram.contribution/1"
SUM = "ciphergram.sum/1"

LOG = logging.getLogger("ciphergram.flare")


class SiteKey:
    """A site's key and job, read from where the site has them."""

    def __init__(self, key: str, job: str | None, fl_ctx: FLContext) -> None:
        path = resolve(key, fl_ctx)
        if path.is_dir():
            # A simulation gives all sites one path: the folder of all members.
            path = own_file(path, number_by_name(site_name(fl_ctx)))
        loaded = cg.load_keys(path)
        if isinstance(loaded, cg.PublicKey):
            raise cg.KeyKind(
                f"{path}: a public key opens and seals nothing for a site: give its secret one"
            )
        self.key = loaded
        self.job = load_job(self.key.public, job, fl_ctx)

    def open(self, frame: bytes) -> cg.Opened:
        """Opens the mean of a sum."""
        return decrypt(opening_key(self.key), frame, self.job)

    def answer(self, request: object) -> bytes:
        """Answers the server, which asks an opener."""
        return answer(self.key, request, self.job)

    def prekey(self) -> bytes | None:
        """Returns the prekey of the next answer, if the site is an opener."""
        return prekey(self.key, self.job)

    def learn(self, told: object) -> None:
        """Takes prekeys that the server hands on."""
        learn(self.key, told, self.job)

    def seal(
        self,
        model: dict[str, Any],
        *,
        ranges: float | Mapping[str, float] | None,
        weight: int,
        max_weight: int,
        number: int | None,
        round: int,
        engine: str,
    ) -> cg.Contribution:
        """Seals a model as the contribution of a client: of its own number, unless the key is shared."""
        options: dict[str, Any] = {
            "ranges": ranges,
            "weight": weight,
            "round": round,
            "engine": engine,
        }
        options |= {"max_weight": max_weight, "job": self.job}
        if isinstance(self.key, cg.SecretKey):
            options["client"] = number
        return self.key.encrypt(model, **options)


def load_job(key: cg.PublicKey, path: str | None, fl_ctx: FLContext | None) -> cg.Job:
    """Returns the job in a file, or the key's own."""
    job = key.job if path is None else cg.Job.load(resolve(path, fl_ctx), key)
    if job is None:
        raise cg.NoJob("the key has no job.json beside it: give its path as job=")
    return job


def number_of(clients: Mapping[str, int] | None, site: str) -> int:
    """Returns the client number of a site that shares a key: by `clients`, or by its name."""
    if clients is not None:
        if site not in clients:
            raise cg.ParameterError(f"clients= has no number for {site}")
        return clients[site]
    number = number_by_name(site)
    if number is None:
        raise cg.ParameterError(
            f"{site}: only of site-N is N - 1 the client number; say clients={{{site!r}: …}}"
        )
    return number


def number_by_name(site: str) -> int | None:
    """Returns N - 1 for ``site-N``."""
    match = re.fullmatch(r"site-([1-9][0-9]{0,4})", site)
    return None if match is None else int(match[1]) - 1


def data_of(frame: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """Returns the data of a message of one frame, and of the tensors that it is of."""
    first, *others = names
    return {first: frame, **dict.fromkeys(others, b"")}


def meta_of(algorithm: str, names: Iterable[str]) -> dict[str, Any]:
    return {
        MetaKey.PROCESSED_ALGORITHM: algorithm,
        MetaKey.PROCESSED_KEYS: dict.fromkeys(names, True),
    }


def frame_of(data: object) -> bytes:
    """Returns the one frame of a message's data."""
    values = list(data.values()) if isinstance(data, Mapping) else []
    if not values or not all(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        raise cg.BadFrame("its data are not the bytes of one frame")
    frames = [bytes(value) for value in values if len(value)]
    if len(frames) != 1:
        raise cg.BadFrame(f"it holds {len(frames)} frames, where one belongs")
    return frames[0]


def may_train(fl_ctx: FLContext) -> bool:
    # The server names the task, and a trainer may heed no name.
    name = fl_ctx.get_prop(FLContextKey.TASK_NAME)
    return name not in (AppConstants.TASK_VALIDATION, AppConstants.TASK_SUBMIT_MODEL)


def site_name(fl_ctx: FLContext) -> str:
    return str(fl_ctx.get_identity_name(default="?"))


def path_texts(key: object, job: object) -> tuple[str, str | None]:
    """Returns the paths of a key's file and of a job's, if one is given."""
    return _path_text("key", key), None if job is None else _path_text("job", job)


def _path_text(option: str, path: object) -> str:
    if not isinstance(path, (str, Path)) or not str(path):
        raise TypeError(
            f"{option}: it is the path of a file, not {type(path).__name__}; keys stay out of a job"
        )
    return str(path)


def resolve(path: str, fl_ctx: FLContext | None) -> Path:
    """Returns the path of a site's file, which may be relative to its ``local`` folder."""
    if "{site}" in path:
        site = "" if fl_ctx is None else site_name(fl_ctx)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", site):
            raise cg.ParameterError(f"{path}: the site's name {site!r} makes no file name")
        path = path.replace("{site}", site)
    place = Path(path)
    engine = None if fl_ctx is None else fl_ctx.get_engine()
    if place.is_absolute() or engine is None:
        return place
    return Path(engine.get_workspace().get_site_config_dir()) / place


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
