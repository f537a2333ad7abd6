"""Signatures of compiled files: Ed25519 (RFC 8032), over the head of a file, whose checksum is over all of the rest.

A checksum tells damage; whoever alters a file makes it right again. A signature tells who wrote the file: compiled
files hold machine code that runs with all rights of the process. docs/concepts/trust.md is the whole model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Union

from autotune.errors import CompiledModelError, InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KeyFiles = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
"""One file, or several."""

_MARK = b"ATSIGNED"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
TRAILER_BYTES = len(_MARK) + _KEY_BYTES + _SIGNATURE_BYTES
_CONTEXT = b"autotune compiled model\0"
"""Begins what is signed, so that no signature for another purpose counts here."""


@dataclass(frozen=True)
class Signer:
    """A private key that signs files."""

    _key: Ed25519PrivateKey

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """From a PEM file, as `openssl genpkey -algorithm ed25519` makes it.

        Raises:
            InputError: there is none, it needs a password, or it is of another kind.
        """
        kinds, serialization = _cryptography()
        data = _content(path)
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except TypeError:
            raise InputError(f"{path} needs a password; give a key without, in a file that only you can read") from None
        except ValueError:
            raise InputError(f"{path} is no private key in PEM; make one: {_MAKE}") from None
        if not isinstance(key, kinds.Ed25519PrivateKey):
            raise InputError(f"{path} is a key of another kind than Ed25519; make one: {_MAKE}")
        return cls(key)

    def trailer(self, head: bytes) -> bytes:
        """What a file with this head ends with."""
        trailer: bytes = _MARK + self._key.public_key().public_bytes_raw() + self._key.sign(_CONTEXT + head)
        return trailer


@dataclass(frozen=True)
class Trust:
    """Whose files may run: the owners of these keys, by the files that the keys were in."""

    _keys: dict[str, Ed25519PublicKey]

    @classmethod
    def load(cls, files: KeyFiles) -> Trust:
        """From PEM files, as `openssl pkey -pubout` makes them.

        Raises:
            InputError: none is named, or one is missing or no public Ed25519 key.
        """
        kinds, serialization = _cryptography()
        paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        if not paths:
            raise InputError("trust names no public key: nothing could be loaded; leave it out, or name one")
        keys = {}
        for path in paths:
            data = _content(path)
            try:
                key = serialization.load_pem_public_key(data)
            except ValueError:
                raise InputError(f"{path} is no public key in PEM; of a private one: {_PUBLISH}") from None
            if not isinstance(key, kinds.Ed25519PublicKey):
                raise InputError(f"{path} is a key of another kind than Ed25519; make one: {_MAKE}")
            keys[str(path)] = key
        return cls(keys)

    def check(self, path: Path, head: bytes, trailer: bytes) -> None:
        """Whether one of the keys has signed a file.

        Args:
            head, trailer: its first and last bytes.

        Raises:
            CompiledModelError: nobody has signed it, somebody else has, or it was altered.
        """
        from cryptography.exceptions import InvalidSignature

        if len(trailer) != TRAILER_BYTES or not trailer.startswith(_MARK):
            raise CompiledModelError(
                f"{path} is not signed; compile it with --sign KEY, or load it without trust if you made it yourself"
            )
        signer, signature = trailer[len(_MARK) : -_SIGNATURE_BYTES], trailer[-_SIGNATURE_BYTES:]
        for key in self._keys.values():
            if key.public_bytes_raw() == signer:
                try:
                    key.verify(signature, _CONTEXT + head)
                except InvalidSignature:
                    raise CompiledModelError(f"{path} was altered after it was signed; get it again") from None
                return
        raise CompiledModelError(f"{path} was signed with another key than {' and '.join(self._keys)}")


def unsigned(model: object) -> CompiledModelError:
    """What is said of a model that is no compiled file, where trust is asked for."""
    return CompiledModelError(f"{model} is no compiled file, so that nobody has signed it; compile it with --sign KEY")


_MAKE = "openssl genpkey -algorithm ed25519 -out key.pem"
_PUBLISH = "openssl pkey -in key.pem -pubout -out key.pub"


def _cryptography() -> tuple[ModuleType, ModuleType]:
    """Its modules of Ed25519 and of key files."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError("signatures need the package cryptography: pip install 'autotune-compiler[signing]'") from None
    return ed25519, serialization


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot read the key {os.fspath(path)!r}: {reason}") from None


_LONGEST = 2**16
