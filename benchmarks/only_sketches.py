"""A plugin that leaves no template of one operator's own: only sketches, `generic` and `plain`.

`benchmarks.without_experts` installs it for processes of its own.
"""

from __future__ import annotations

from autotune.plugins import registered
from autotune.search_spaces.space import registry

RESORTS = ("generic", "plain")


def is_sketch(template: registry.Template) -> bool:
    return template.name in RESORTS or ".sketch." in type(template.rules).__module__


for _name in registry.names():
    if not is_sketch(registry.lookup(_name)):
        del registry._TEMPLATES[_name]
registered(is_sketch)  # what is compiled so is nobody else's
