"""ModelPackageContext: a model package of ONNX Runtime, and a session of the variant in it that is for the CPU."""

from __future__ import annotations

import os
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from autotune.api.package_files import SCHEMA, Package, Variant, read_package
from autotune.api.providers import CPU
from autotune.api.session import InferenceSession
from autotune.api.session_options import SessionOptions, tell_once
from autotune.errors import InputError, ModelError, UnsupportedError

_THREADS = "session.intra_op_num_threads"
_WEIGHTS = "session.model_external_initializers_file_folder_path"


class ModelPackageWriteMode(IntEnum):
    """How ONNX Runtime writes packages; here they are only read."""

    PRESERVE = 0
    DENSE = 1


class ModelPackage:
    """Not supported: it writes packages, which autotune only reads."""

    def __init__(self) -> None:
        """Raises UnsupportedError: `ModelPackageContext` reads packages."""
        raise _no_writing("ModelPackage()")

    @staticmethod
    def open(package_root: object, **_: object) -> NoReturn:
        """Raises UnsupportedError: `ModelPackageContext` reads packages."""
        raise _no_writing(f"ModelPackage.open({str(package_root)!r})")


class ModelPackageOptions:
    """For which provider a variant is wanted: the CPU's.

    Args:
        sess_options: `SessionOptions`, whose other providers have warned.
    """

    def __init__(self, sess_options: Any) -> None:
        if sess_options is not None and not hasattr(sess_options, "intra_op_num_threads"):
            raise InputError(f"ModelPackageOptions are made of SessionOptions, not of {sess_options!r}")


class ModelPackageComponentContext:
    """The variant of a component that was selected; `ModelPackageContext.select_component` makes it."""

    def __init__(self, package: Package, variant: Variant) -> None:
        self._package = package
        self._variant = variant

    def get_selected_variant_name(self) -> str:
        return self._variant.name

    def get_selected_variant_folder_path(self) -> str:
        return str(self._variant.folder)

    def create_session(self, sess_options: Any = None) -> InferenceSession:
        """A session of the model.

        Args:
            sess_options: `SessionOptions`; None for those of the package.

        Raises:
            ModelError: the variant names no model, the model cannot be used, or its weights lie in another folder.
            InputError: an option of the package has an impossible value.
        """
        variant = self._variant
        if variant.model_file is None:
            raise ModelError(f"{variant.folder}: variant {variant.name!r} names no model_file for ONNX Runtime")
        weights = variant.session_options.get(_WEIGHTS)
        if weights and self._package.resolve(weights, variant.folder) != variant.model_file.parent:
            raise UnsupportedError(f"{_WEIGHTS}={weights!r}: keep the tensors' file beside {variant.model_file}")
        return InferenceSession(variant.model_file, self._options() if sess_options is None else sess_options)

    def _options(self) -> SessionOptions:
        """Those that the package says."""
        options = SessionOptions()
        for key, value in self._variant.session_options.items():
            if key == _THREADS:
                if not value.isdecimal():
                    raise InputError(f"{_THREADS} is a number, not {value!r}")
                options.intra_op_num_threads = int(value)
            elif key != _WEIGHTS:
                options.add_session_config_entry(key, value)
        if self._variant.provider_options:
            tell_once("the provider options of a model package", "a compiled program has none")
        return options


class ModelPackageContext:
    """A package that is open.

    Args:
        package_root: its folder.

    Raises:
        InputError, ModelError: it is no package, a damaged one, or one of a later version.
    """

    def __init__(self, package_root: str | os.PathLike[str]) -> None:
        self._package, self._components = read_package(package_root)

    def get_schema_version(self) -> int:
        """The major one."""
        return SCHEMA

    def get_component_count(self) -> int:
        return len(self._components)

    def get_component_names(self) -> list[str]:
        return list(self._components)

    def get_variant_count(self, component_name: str) -> int:
        """Raises InputError for an unknown component."""
        return len(self.get_variant_names(component_name))

    def get_variant_names(self, component_name: str) -> list[str]:
        """Raises InputError for an unknown component."""
        if component_name not in self._components:
            raise InputError(
                f"no component {component_name!r}; the package has {', '.join(self._components) or 'none'}"
            )
        return list(self._components[component_name])

    def get_variant_ep_name(self, component_name: str, variant_name: str) -> str | None:
        """The provider that a variant is for. Raises InputError for an unknown component or variant."""
        names = self.get_variant_names(component_name)
        if variant_name not in names:
            raise InputError(
                f"no variant {variant_name!r}; component {component_name!r} has {', '.join(names) or 'none'}"
            )
        return self._components[component_name][variant_name].ep

    def resolve_string_ref(self, string_ref: str, base_dir: str | None = None, must_exist: bool = False) -> str:
        """A path that the package names. Raises ModelError where it leads out of a portable package, or is missing."""
        base = self._package.root if base_dir is None else Path(base_dir).absolute()
        return str(self._package.resolve(string_ref, base, must_exist))

    def select_component(self, component_name: str, options: ModelPackageOptions) -> ModelPackageComponentContext:
        """The first variant of a component that is for the CPU.

        Raises:
            InputError: the component is unknown. UnsupportedError: all its variants are for other devices.
        """
        self.get_variant_names(component_name)
        if not isinstance(options, ModelPackageOptions):
            raise InputError(f"a variant is selected by ModelPackageOptions(SessionOptions()), not by {options!r}")
        variants = self._components[component_name].values()
        for variant in variants:
            if variant.ep == CPU and variant.device in (None, "cpu"):
                return ModelPackageComponentContext(self._package, variant)
        others = ", ".join(f"{one.name} for {one.ep or 'none'}" for one in variants) or "none"
        raise UnsupportedError(f"component {component_name!r} has no variant for the {CPU}: there are {others}")


def _no_writing(what: str) -> UnsupportedError:
    return UnsupportedError(f"{what}: autotune reads packages (ModelPackageContext); onnxruntime writes them")
