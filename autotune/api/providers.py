"""What ONNX Runtime's module says about devices, for the one device that there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autotune.api.session_options import tell_once
from autotune.errors import InputError

CPU = "CPUExecutionProvider"


def get_available_providers() -> list[str]:
    """The CPU."""
    return [CPU]


def get_all_providers() -> list[str]:
    """The CPU."""
    return [CPU]


def get_device() -> str:
    return "CPU"


def check_providers(providers: Sequence[Any] | None) -> None:
    """Warn, once each, of providers other than the CPU. Raises InputError for what is no list of names."""
    if isinstance(providers, str) or not isinstance(providers or (), Iterable):
        raise InputError(f"providers must be a list of names, not {providers!r}")
    for provider in providers or ():
        name = provider[0] if isinstance(provider, tuple) and provider else provider
        if not isinstance(name, str):
            raise InputError(f"a provider is a name, or a name with options, not {provider!r}")
        if name != CPU:
            tell_once(f"the provider {name}", "it runs on the CPU")
