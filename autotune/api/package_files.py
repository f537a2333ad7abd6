"""The files of a model package of ONNX Runtime: a manifest, and what it says of components and their variants.

Nothing in it is trusted: in a portable package no path leads out of its folder, whatever links are on the way.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from autotune.errors import InputError, ModelError

SCHEMA = 1
"""The one major version of the manifest that there is."""

_ASSET = re.compile(r"sha256:([0-9a-f]{64})(?:/(.*))?")
_MANIFEST = {
    "schema_version", "package_name", "package_version", "description", "layout", "components", "shared_assets",
    "additional_metadata",
}  # fmt: skip
_COMPONENT = {"component_name", "variants", "additional_metadata"}
_VARIANT = {"variant_directory", "ep", "device", "compatibility_string", "executor_info", "additional_metadata"}
_FORBIDDEN = {
    "session.debug_layout_transformation", "session.collect_node_memory_stats_to_file", "session.enable_profiling",
    "session.optimized_model_filepath",
}  # fmt: skip
"""Options by which a package would have files written."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A model of a component, for one provider.

    Attributes:
        ep: the name of the provider; None where the package says none, which no provider takes.
        device: "cpu", "gpu" or "npu"; None for any.
        model_file: None where the package says none for ONNX Runtime.
    """

    name: str
    folder: Path
    ep: str | None
    device: str | None
    model_file: Path | None
    session_options: Mapping[str, str]
    provider_options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Package:
    """A package as it was read.

    Attributes:
        portable: whether all paths must stay in its folder.
        shared: folders of shared files, by digest, that lie elsewhere than in `shared_assets`.
    """

    root: Path
    portable: bool
    shared: Mapping[str, str]

    def resolve(self, text: str, base: Path, must_exist: bool = False) -> Path:
        """A path that the package names, or one under a digest, `sha256:<hex>/path`.

        Raises:
            ModelError: it leads out of a portable package, or there is no such file or shared folder.
        """
        asset = _ASSET.fullmatch(text)
        if asset is None:
            found = base / text
        else:
            digest, below = asset.groups()
            override = self.shared.get(f"sha256:{digest}")
            folder = self.root / "shared_assets" / f"sha256-{digest}" if override is None else self.root / override
            if not folder.is_dir() or (below and not _stays(below)):
                raise ModelError(f"{self.root}: there are no shared files {text!r}")
            found = folder / (below or "")
        outside = not found.resolve().is_relative_to(self.root)
        if self.portable and (outside or (asset is None and not _stays(text))):
            raise ModelError(f"{self.root}: {text!r} leads out of the package, whose layout is portable")
        if must_exist and not found.exists():
            raise ModelError(f"{self.root}: there is no {text!r}")
        return Path(os.path.normpath(found))


def read_package(root: str | os.PathLike[str]) -> tuple[Package, Mapping[str, Mapping[str, Variant]]]:
    """A package and its variants, by component and name.

    Raises:
        InputError: `root` is no path. ModelError: it is no package, or a damaged one, or one of a later version.
    """
    if not isinstance(root, (str, os.PathLike)):
        raise InputError(f"a model package is a folder, not {root!r}")
    try:
        folder = Path(root).resolve()
    except ValueError as error:  # a zero byte
        raise InputError(f"{str(root)!r} names no folder: {error}") from error
    manifest = _json(folder / "manifest.json", f"{root} is no model package")
    where = f"{folder / 'manifest.json'}"
    _check(manifest, _MANIFEST, where)
    version = str(manifest.get("schema_version", "none"))
    if version.partition(".")[0] != str(SCHEMA):
        raise ModelError(f"{where}: schema_version is {version}, and {SCHEMA}.x can be read")
    layout = manifest.get("layout", "portable")
    if layout not in ("portable", "installed"):
        raise ModelError(f"{where}: layout is 'portable' or 'installed', not {layout!r}")
    package = Package(folder, layout == "portable", _texts(manifest, "shared_assets", where))
    components = manifest.get("components")
    if not isinstance(components, dict):
        raise ModelError(f"{where}: components must be an object, not {type(components).__name__}")
    return package, {name: _component(package, name, body) for name, body in components.items()}


def _component(package: Package, name: str, body: object) -> Mapping[str, Variant]:
    folder = package.root
    where = f"{package.root}: component {name!r}"
    if isinstance(body, str):
        path = package.resolve(body, package.root, must_exist=True)
        path = path / "component.json" if path.is_dir() else path
        folder, body = path.parent, _json(path, where)
    content = _check(body, _COMPONENT, where)
    variants = content.get("variants")
    if not isinstance(variants, dict):
        raise ModelError(f"{where}: variants must be an object, not {type(variants).__name__}")
    return {each: _variant(package, folder, each, found, where) for each, found in variants.items()}


def _variant(package: Package, above: Path, name: str, body: object, component: str) -> Variant:
    where = f"{component}, variant {name!r}"
    content = _check(body, _VARIANT, where)
    declared = _text(content, "variant_directory", where)
    folder = package.resolve(declared or name, above, must_exist=declared is not None)
    executors = content.get("executor_info", {})
    info = _check(executors, None, where).get("ort", {})
    if isinstance(info, str):
        info = _json(package.resolve(info, folder, must_exist=True), where)
    settings = _check(info, None, where)
    options = _texts(settings, "session_options", where)
    for forbidden in sorted(_FORBIDDEN & options.keys()):
        raise ModelError(f"{where}: a package may not set {forbidden!r}, which would have files written")
    file = _text(settings, "model_file", where)
    return Variant(
        name,
        folder,
        _text(content, "ep", where),
        _text(content, "device", where),
        None if file is None else package.resolve(file, folder),
        options,
        _texts(settings, "provider_options", where),
    )


def _stays(path: str) -> bool:
    """Whether a path is relative and has no `..`."""
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


def _json(path: Path, where: str) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{where}: {path} cannot be read: {' '.join(str(error).split())[:200]}") from error


def _check(body: object, known: Collection[str] | None, where: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ModelError(f"{where} must be an object, not {type(body).__name__}")
    unknown = [] if known is None else sorted(body.keys() - set(known))
    if unknown:
        raise ModelError(f"{where}: unknown {', '.join(map(repr, unknown))}")
    return body


def _text(body: Mapping[str, Any], key: str, where: str) -> str | None:
    found = body.get(key)
    if found is not None and not isinstance(found, str):
        raise ModelError(f"{where}: {key} must be a text, not {found!r}")
    return found


def _texts(body: Mapping[str, Any], key: str, where: str) -> Mapping[str, str]:
    found = body.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ModelError(f"{where}: {key} must be an object of texts")
    return found
