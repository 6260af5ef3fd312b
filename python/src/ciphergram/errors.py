"""Errors: one family, whose members say what was wrong and where.

Every message says what was wrong and where, and what can be done about it. The facts behind the words are
attributes: ``error.fields`` is a dictionary of them, and each is an attribute too.
"""

from __future__ import annotations

from typing import Any


class CiphergramError(Exception):
    """An operation that failed; the base of all errors of this package."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.fields)


def _rebuild(
    cls: type[CiphergramError], args: tuple[str, ...], fields: dict[str, Any]
) -> CiphergramError:
    return cls(*args, **fields)


class CiphergramWarning(UserWarning):
    """Something that works, and may not be meant; the category of all warnings of this package."""


class ParameterError(CiphergramError, ValueError):
    """Parameters outside what is secure or supported, or an argument that cannot be meant."""


class NoJob(CiphergramError):
    """No job is known: the key came without one, and none was given."""


class JobMismatch(CiphergramError):
    """Something made for another job, or a job made under another key."""


class BeyondJob(CiphergramError):
    """Ranges, weights or tensors that the job does not admit."""


class KeyMismatch(CiphergramError):
    """Something made under another key, or under other parameters."""


class KeyKind(CiphergramError):
    """A key of the wrong kind: public where a secret one is needed, or the reverse."""


class ClientNumberError(CiphergramError, ValueError):
    """A client's number that the job does not have, or that is not the key's."""


class DtypeError(CiphergramError, TypeError):
    """A tensor of a type that cannot be summed. Fields: ``tensor``, ``dtype``."""


class NotFinite(CiphergramError, ValueError):
    """A value that is NaN or infinite. Fields: ``tensor``, ``index``, ``value``."""


class Overflow(CiphergramError, OverflowError):
    """A value that its type, field, range or modulus cannot hold. Fields: ``tensor``, ``index``, ``dtype``."""


class OutOfLevels(CiphergramError):
    """A product of vectors that no level is left for."""


class NoEvaluationKey(CiphergramError):
    """Work on vectors that there is no key for. Field: ``rotation``, where it is one."""


class NotAMember(CiphergramError):
    """An identity that has no part in a job, or a job without openers where some are needed."""


class OpenerError(CiphergramError):
    """Something between a client and an opener that is not their own. Fields: ``opener`` or ``client``."""


class NoRangesKey(CiphergramError):
    """Private ranges, and no key to propose, find or open them with, or a package that was built without them."""


class WeightError(CiphergramError, ValueError):
    """A weight that is not from 1 to the agreed largest. Fields: ``weight``, ``max_weight``."""


class LayoutError(CiphergramError, ValueError):
    """Tensors of other names, types or shapes than the rest. Field: ``difference``."""


class RangesDiffer(CiphergramError, ValueError):
    """Updates that were quantised over different ranges. Field: ``difference``."""


class ScaleMismatch(CiphergramError, ValueError):
    """Encrypted numbers of different scales, where there must be one. Fields: ``found``, ``expected``."""


class BadFrame(CiphergramError, ValueError):
    """Bytes that are not what they should be: cut, changed, of another kind or of a later version."""


class BadCiphertext(CiphergramError, ValueError):
    """A ciphertext that nobody could have made honestly. Field: ``chunk``."""


class BadTerms(CiphergramError):
    """Terms of a round that this client must not contribute under."""


class RoundMismatch(CiphergramError):
    """A contribution of another round than the rest. Fields: ``found``, ``expected``."""


class RoundOver(CiphergramError):
    """A round that this client has contributed to. Fields: ``client``, ``round``, ``last``."""


class SumMismatch(CiphergramError):
    """A sum that is not what its contributors sealed: it does not open. Field: ``contributors``."""


class SecondSum(CiphergramError):
    """Another sum of a round of which one was opened. Field: ``round``."""


class RoundSpent(CiphergramError):
    """A round of which too many sums did not open. Field: ``round``."""


class DifferentSums(CiphergramError):
    """Clients of a round who opened different sums of an earlier one. Field: ``round``."""


class TooFew(CiphergramError):
    """A sum of fewer than the job demands, or ranges of fewer than their rank. Fields: ``found``, ``min_clients``."""


class TooMany(CiphergramError):
    """More contributors than the key admits. Fields: ``found``, ``admitted``."""


class DuplicateClient(CiphergramError):
    """Two contributions of one client. Field: ``client``, where it is known."""


class Exists(CiphergramError, FileExistsError):
    """A file that would be overwritten. Field: ``path``."""


class FileError(CiphergramError, OSError):
    """The operating system refused to read or write. Field: ``errno``, where it gave one."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.errno = fields.get("errno")


class EngineError(CiphergramError, RuntimeError):
    """An engine that failed or is not there."""


class Refused(CiphergramError):
    """The server refused this client, in its words."""


class Unreachable(CiphergramError, ConnectionError):
    """The server does not answer, or no longer."""


class Unlisted(CiphergramError, ConnectionError):
    """The server does not list this client's node. Fields: ``server``, ``node``."""


class Withheld(CiphergramError):
    """Sums that never left the server. Fields: ``round``, ``withheld``, ``chunks``."""


class SpoolError(CiphergramError):
    """A spool that is not of this contribution, or cannot be used."""


class NodeKeyError(CiphergramError):
    """A file of node keys that cannot be used, or that is not there."""


class Stopped(CiphergramError):
    """A call that was stopped by its owner."""


class ForkedError(CiphergramError, RuntimeError):
    """A client or server of the parent process, used in a child that was forked."""


__all__ = [
    name
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, CiphergramError | CiphergramWarning)
]
