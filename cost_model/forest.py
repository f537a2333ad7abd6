"""Forest: a trained ensemble of regression trees as plain arrays, evaluated with NumPy.

XGBoost trains; whoever only wants an answer (a compiler that chooses the schedule of a kernel nobody has tuned) should
not pay for importing it. A file holds arrays and JSON, no code; a file that does not fit is refused in one line.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.complete_trees import CompleteTrees
from autotune.cost_model.features import Features, check_same
from autotune.errors import CostModelError

FORMAT = 1
MAGIC = b"autotune forest "
MOST_BYTES = 64 << 20
"""What the arrays of a file may take: a thousand times what ours do."""
MOST_DEPTH = 12
"""Of a tree: tables double with each level. Ours have five."""
_ARRAYS = {"feature": np.int16, "threshold": np.float32, "child": np.int32, "roots": np.int32, "members": np.int32}


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Several models of one thing, each a sum of trees; their mean is the answer, their spread its uncertainty.

    Attributes:
        names, version: the columns that it was trained on, see `Features`.
        feature: (nodes,) column that a node asks about, -1 for a leaf.
        threshold: (nodes,) of a node: smaller values go to the first child; of a leaf: its value.
        child: (nodes,) the first child of a node; the second follows it.
        missing: where NaN goes is the first child.
        roots: (trees,) first node of each tree. `members`: (trees,) which model a tree belongs to.
        start: the column of a closed form's cycles, from whose logarithm, times `weight`, every score starts: trees
            cannot go beyond what they have seen, a closed form can. Empty without one.
        note: where it comes from, for people.
    """

    names: tuple[str, ...]
    version: int
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    child: NDArray[np.int32]
    roots: NDArray[np.int32]
    members: NDArray[np.int32]
    start: str = ""
    weight: float = 0.0
    note: str = ""

    def predict(self, features: Features) -> NDArray[np.float64]:
        """(rows,) scores, higher is faster.

        Raises:
            CostModelError: the features are not those that it was trained on.
        """
        return np.asarray(self.each(features).mean(axis=0), np.float64)

    def each(self, features: Features) -> NDArray[np.float64]:
        """(models, rows) the score that each of the models gives."""
        check_same(Features(self.names, np.empty((0, len(self.names)), np.float32), self.version), features)
        trees, bounds = _tables(self)
        leaves = trees.leaves(features.values)
        begin = starting_score(features, self.start, self.weight)
        each = itertools.pairwise(bounds)
        return np.stack([begin + leaves[low:high].sum(axis=0, dtype=np.float64) for low, high in each])

    def over(self, names: Sequence[str]) -> Forest:
        """The same forest where there are more columns: it asks about none of those that it does not know.

        Raises:
            CostModelError: a column that it was trained on is not among them.
        """
        lacking = sorted(set(self.names) - set(names))
        if lacking:
            raise CostModelError(f"the model was trained on {lacking[0]!r}, and there is no such feature any more")
        places = np.array([*(list(names).index(name) for name in self.names), -1], np.int16)  # -1, of leaves, stays
        return replace(self, names=tuple(names), feature=places[self.feature])

    def plus(self, other: Forest) -> Forest:
        """A forest that says what both say together: each model of this one with its share of the other's models.

        Where the other has more, several of them speak in one of these, each the less.
        """
        check_same(Features(self.names, np.empty((0, len(self.names)), np.float32), self.version),
                   Features(other.names, np.empty((0, len(other.names)), np.float32), other.version))  # fmt: skip
        models, shift = int(self.members.max()) + 1, len(self.feature)
        share = np.float32(models / (int(other.members.max()) + 1))
        said = np.where(other.feature < 0, other.threshold * share, other.threshold)
        return replace(
            self,
            feature=np.concatenate([self.feature, other.feature]),
            threshold=np.concatenate([self.threshold, said]),
            child=np.concatenate([self.child, other.child + np.where(other.feature >= 0, shift, 0).astype(np.int32)]),
            roots=np.concatenate([self.roots, other.roots + np.int32(shift)]),
            members=np.concatenate([self.members, other.members % np.int32(models)]),
            note=other.note,
        )

    def attention(self) -> dict[str, float]:
        """Each column's share of the questions asked, those near a root counting more; largest first."""
        depth = np.zeros(len(self.feature))
        for node in np.flatnonzero(self.feature >= 0):  # children lie behind their parents
            depth[self.child[node]] = depth[self.child[node] + 1] = depth[node] + 1
        asked = self.feature >= 0
        shares = np.bincount(self.feature[asked], 0.5 ** depth[asked], minlength=len(self.names))
        order = np.argsort(-shares, kind="stable")
        return {self.names[n]: float(shares[n] / shares.sum()) for n in order if shares[n] > 0}

    @property
    def key(self) -> str:
        """16 hex digits that name it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:16]

    def to_bytes(self) -> bytes:
        """A line with a checksum, then a compressed archive of arrays; the same forest gives the same bytes."""
        head = json.dumps({"format": FORMAT, "names": list(self.names), "version": self.version, "note": self.note,
                           "start": self.start, "weight": self.weight})  # fmt: skip
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in [("head.json", head.encode()), *((n, getattr(self, n).tobytes()) for n in _ARRAYS)]:
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return MAGIC + hashlib.sha256(out.getvalue()).hexdigest().encode() + b"\n" + out.getvalue()

    @staticmethod
    def from_bytes(data: bytes, source: str = "the model") -> Forest:
        """The inverse of `to_bytes`.

        Raises:
            CostModelError: it is no forest, a damaged one, or one of another format.
        """
        line, _, packed = data.partition(b"\n")
        if not line.startswith(MAGIC):
            raise CostModelError(f"{source} is no cost model; train one")
        if line[len(MAGIC) :] != hashlib.sha256(packed).hexdigest().encode():
            raise CostModelError(f"{source} is damaged: its checksum is wrong; train it again")
        try:
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                    raise CostModelError(f"{source} unpacks to more than {MOST_BYTES >> 20} MiB; train it again")
                head = json.loads(archive.read("head.json"))
                arrays = {name: np.frombuffer(archive.read(name), kind) for name, kind in _ARRAYS.items()}
            names, version = tuple(str(n) for n in head["names"]), int(head["version"])
            start, weight = str(head["start"]), float(head["weight"])
        except (
            zipfile.BadZipFile,
            zlib.error,
            LookupError,
            ValueError,
            TypeError,
            OSError,
            EOFError,
            RuntimeError,
        ) as bad:
            raise CostModelError(f"{source} is damaged: {' '.join(str(bad).split())[:200]}; train it again") from bad
        if head.get("format") != FORMAT:
            raise CostModelError(f"{source} has format {head.get('format')}, not {FORMAT}; train it again")
        forest = Forest(names, version, start=start, weight=weight, note=str(head.get("note", "")), **arrays)
        forest._check(source)
        return forest

    def _check(self, source: str) -> None:
        """Every node leads to a leaf: children lie behind their parents and inside the arrays."""
        nodes, inside = len(self.feature), self.feature >= 0
        here = np.flatnonzero(inside)
        fits = len(self.threshold) == len(self.child) == nodes and len(self.roots) == len(self.members)
        fits = fits and bool((self.feature < len(self.names)).all()) and len(self.roots) > 0
        fits = fits and bool(((self.roots >= 0) & (self.roots < nodes)).all()) and bool((self.members >= 0).all())
        fits = fits and bool((self.members < len(self.roots)).all()) and bool(np.isfinite(self.threshold).all())
        fits = fits and (not self.start or self.start in self.names) and bool(np.isfinite(self.weight))
        if not (fits and bool(((self.child[here] > here) & (self.child[here] + 1 < nodes)).all())):
            raise CostModelError(f"{source} is damaged: its trees do not fit together; train it again")
        level = self.roots[inside[self.roots]]
        for _ in range(MOST_DEPTH):
            below = np.concatenate([self.child[level], self.child[level] + 1])
            level = np.unique(below[inside[below]])
        if len(level):
            raise CostModelError(f"{source} has trees of more than {MOST_DEPTH} levels; train it with smaller ones")

    @staticmethod
    def read(path: Path) -> Forest:
        """The forest in a file; CostModelError when there is none."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CostModelError(f"cannot read the cost model {path}: {error.strerror}") from error
        return Forest.from_bytes(data, str(path))


@functools.lru_cache(maxsize=4)
def _tables(forest: Forest) -> tuple[CompleteTrees, list[int]]:
    """Its trees, those of a model side by side, and where each model's begin and end."""
    order = np.argsort(forest.members, kind="stable")
    trees = CompleteTrees(forest.feature, forest.threshold, forest.child, forest.roots[order], len(forest.names))
    models = int(forest.members.max(initial=-1)) + 1
    return trees, np.searchsorted(forest.members[order], np.arange(models + 1)).tolist()


def starting_score(features: Features, start: str, weight: float) -> NDArray[np.float64]:
    """(rows,) what scores start from: -weight * log(cycles); 0 without a column of cycles."""
    if not start:
        return np.zeros(len(features))
    return np.asarray(-weight * np.log(np.maximum(features.column(start).astype(np.float64), 1e-9)))


def forest_of(
    boosters: Sequence[Sequence[str]],
    names: Sequence[str],
    version: int,
    *,
    start: str = "",
    weight: float = 0.0,
    note: str = "",
) -> Forest:
    """Trees as XGBoost prints them in JSON (`Booster.get_dump(dump_format="json")`), one list per model.

    NaN must go to the first child: train on features without NaN, or with that as the default direction.
    """
    places = {name: n for n, name in enumerate(names)} | {f"f{n}": n for n in range(len(names))}
    feature, child, roots, members = (list[int]() for _ in range(4))
    threshold: list[float] = []
    for member, dump in enumerate(boosters):
        for text in dump:
            roots.append(len(feature))
            members.append(member)
            feature.append(-1)
            threshold.append(0.0)
            child.append(0)
            todo = [(json.loads(text), roots[-1])]
            while todo:
                tree, place = todo.pop(0)
                if "leaf" in tree:
                    threshold[place] = float(tree["leaf"])
                    continue
                feature[place], threshold[place] = places[tree["split"]], float(tree["split_condition"])
                child[place] = len(feature)
                below = {branch["nodeid"]: branch for branch in tree["children"]}
                for side in ("yes", "no"):
                    todo.append((below[tree[side]], len(feature)))
                    feature.append(-1)
                    threshold.append(0.0)
                    child.append(0)
    return Forest(
        tuple(names),
        version,
        np.array(feature, np.int16),
        np.array(threshold, np.float32),
        np.array(child, np.int32),
        np.array(roots, np.int32),
        np.array(members, np.int32),
        start,
        weight,
        note,
    )
