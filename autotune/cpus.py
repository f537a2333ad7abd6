"""What LLVM knows about CPUs by name: which it knows, and the features of each.

LLVM prints its list but has no function for a CPU's features, and a name that it does not know ends the process or
is silently taken for a generic CPU. So names are checked against a list (a test compares it with LLVM's), and the
features are found by asking LLVM's own tables a question that they do answer: may a function that needs the feature
be inlined into a function compiled for the CPU? It may when the CPU has the feature and all that it implies.
"""

from __future__ import annotations

import functools
import re

from autotune import machine

TRIPLE = "x86_64-unknown-linux-gnu"

# The CPUs of LLVM 22 that have AVX2 and FMA, without LLVM's aliases that are spelt with underscores.
CPUS = tuple(
    """
    alderlake arrowlake arrowlake-s bdver4 broadwell cannonlake cascadelake clearwaterforest cooperlake core-avx2
    diamondrapids emeraldrapids gracemont grandridge graniterapids graniterapids-d haswell icelake-client icelake-server
    knl knm lunarlake meteorlake novalake pantherlake raptorlake rocketlake sapphirerapids sierraforest skx skylake
    skylake-avx512 tigerlake wildcatlake x86-64-v3 x86-64-v4 znver1 znver2 znver3 znver4 znver5
    """.split()
)


@functools.cache
def features_of(cpu: str) -> tuple[str, ...]:
    """The features of a CPU in `CPUS` by LLVM's tables, sorted; about 50 ms, once per name."""
    import llvmlite.binding as llvm  # a compiled file runs without it

    features = machine.known_features()
    lines = [f'target triple = "{TRIPLE}"', "@sink = global i32 0"]
    for number, feature in enumerate(features):
        # the volatile store keeps the call alive until it is inlined
        lines.append(f"define void @f{number}() #{number} {{\n store volatile i32 0, ptr @sink\n ret void\n}}")
        lines.append(f'attributes #{number} = {{ "target-cpu"="x86-64" "target-features"="+{feature}" }}')
    calls = "\n".join(f" call void @f{number}()" for number in range(len(features)))
    lines.append(f"define void @cpu() #{len(features)} {{\n{calls}\n ret void\n}}")
    lines.append(f'attributes #{len(features)} = {{ "target-cpu"="{cpu}" }}')

    llvm.initialize_native_target()
    target_machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="x86-64")
    module = llvm.parse_assembly("\n".join(lines))
    builder = llvm.create_pass_builder(target_machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    refused = {int(number) for number in re.findall(r"call void @f(\d+)\(", str(module.get_function("cpu")))}
    return tuple(feature for number, feature in enumerate(features) if number not in refused)
