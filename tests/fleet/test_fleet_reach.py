"""TLS as Dask is configured for it: who has a certificate of the cluster's authority is let in, and nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

import dask

from autotune.errors import ClusterError
from autotune.fleet.engine import Fleet, Patience
from autotune.fleet.identity import Identity, build_resource
from autotune.fleet.reach import require_reachable
from autotune.measure.protocol import Message, encode
from tests.fleet.certificates import dask_settings
from tests.fleet.cluster import Scripted, cluster

ME = Identity.here()


def test_a_cluster_with_certificates_lets_in_who_has_one(tmp_path: Path) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    ours.mkdir()
    others.mkdir()

    def answer(frame: bytes, by: str) -> bytes:
        return encode(Message({"by": by, "reply": {"from": by}}))

    with dask.config.set(dask_settings(ours)), cluster() as made:
        assert made.address.startswith("tls://")
        made.join(Scripted(Identity.here(builders=1), answer), "builder")
        with Fleet(made.address, ME, Patience(alone=20.0)) as fleet:
            assert [member.name for member in fleet.members] == ["builder"]
            asked = fleet.ask(build_resource(ME.code), Message({"do": "build"}), lambda reply: str(reply.body["from"]))
            assert str(asked.result(60)).startswith("tls://")
        with dask.config.set(dask_settings(others)), pytest.raises(ClusterError, match="certificate"):
            Fleet(made.address, ME)
        with dask.config.set(dask_settings(others)), pytest.raises(ClusterError, match="certificate"):
            asyncio.run(require_reachable(made.address, "worker"))
        nowhere = {"distributed.comm.tls.ca-file": str(tmp_path / "nowhere.pem")}
        with dask.config.set(nowhere), pytest.raises(ClusterError, match="No such file"):
            Fleet(made.address, ME)
