"""Who is reached and let in: by TLS who has a certificate of the cluster's authority; what is no scheduler, never."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
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


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:99999", "tcp://127.0.0.1", "nowhere", "http://127.0.0.1:80"])
def test_what_is_no_address_is_one_line(address: str) -> None:
    with pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address}"):
        Fleet(address, ME)


@pytest.mark.parametrize("says", [lambda one: None, lambda one: one.sendall(os.urandom(4096)), socket.socket.close])
def test_who_is_no_scheduler_is_not_waited_for(says: Callable[[socket.socket], object]) -> None:
    """As a server of another kind behind a port that was mistyped: it is silent, talks nonsense, or hangs up."""
    taken: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            taken.append(one)
            says(one)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=take, daemon=True).start()
        with dask.config.set({"autotune.connect-timeout": 0.5}), pytest.raises(ClusterError) as raised:
            Fleet(f"tcp://127.0.0.1:{server.getsockname()[1]}", ME)
        server.shutdown(socket.SHUT_RDWR)
    assert "\n" not in str(raised.value) and "no Dask scheduler answers" in str(raised.value)
    for one in taken:
        one.close()
