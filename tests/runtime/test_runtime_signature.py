"""Signatures: who signed a file may run it; whatever was altered, cut or signed by others is refused in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import autotune
from autotune.errors import AutotuneError, CompiledModelError, InputError
from autotune.runtime.artifact import load_artifact
from autotune.runtime.signature import TRAILER_BYTES, KeyFiles, Signer, Trust
from tests.cli.cli_models import invoke

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """A private key and its public one."""
    key = ed25519.Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


class Signed:
    """A compiled file that ours has signed, and a pair of keys that has signed nothing."""

    def __init__(self, folder: Path) -> None:
        self.private, self.public = keys(folder, "ours")
        self.other, self.stranger = keys(folder, "theirs")
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])],
        )
        self.model = folder / "m.onnx"
        self.model.write_bytes(helper.make_model(graph).SerializeToString())
        self.path = folder / "m.at"
        self.compiled = autotune.compile(str(self.model), "native -num-cores=1", False)
        self.compiled.save(self.path, sign=self.private)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("signed"))


def refused(path: Path, *trust: Path) -> str:
    with pytest.raises(CompiledModelError) as raised:
        autotune.InferenceSession(path, trust=trust)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_signed_file_runs_with_trust_and_without(signed: Signed) -> None:
    trusts: tuple[KeyFiles | None, ...] = (None, signed.public, [str(signed.stranger), signed.public])
    for trust in trusts:
        session = autotune.InferenceSession(signed.path, trust=trust)
        (out,) = session.run(None, {"x": np.full(64, -1, np.float32)})
        assert not out.any()


def test_who_else_signed_or_nobody(signed: Signed, tmp_path: Path) -> None:
    assert "was signed with another key than " in refused(signed.path, signed.stranger)
    plain = tmp_path / "plain.at"
    signed.compiled.save(plain)
    assert f"{plain} is not signed; compile it with --sign KEY" in refused(plain, signed.public)
    assert "is no compiled file, so that nobody has signed it" in refused(signed.model, signed.public)
    with pytest.raises(CompiledModelError, match="the model is no compiled file"):
        autotune.InferenceSession(signed.model.read_bytes(), trust=signed.public)


def test_a_signature_belongs_to_one_file(signed: Signed, tmp_path: Path) -> None:
    other = tmp_path / "other.at"
    autotune.compile(str(signed.model), "native -num-cores=2", False).save(other)
    other.write_bytes(other.read_bytes() + signed.path.read_bytes()[-TRAILER_BYTES:])
    assert "was altered after it was signed" in refused(other, signed.public)
    autotune.InferenceSession(other)


def test_the_keys_of_openssl_are_read(signed: Signed, tmp_path: Path) -> None:
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    try:
        for words in (f"genpkey -algorithm ed25519 -out {private}", f"pkey -in {private} -pubout -out {public}"):
            subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl here")
    signed.compiled.save(tmp_path / "m.at", sign=private)
    autotune.InferenceSession(tmp_path / "m.at", trust=public)


def test_files_that_are_no_keys(signed: Signed, tmp_path: Path) -> None:
    nothing, text, curve, secret = (tmp_path / name for name in ("nothing", "text", "curve", "secret"))
    text.write_text("-----BEGIN nonsense")
    other = ec.generate_private_key(ec.SECP256R1())
    curve.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    own = ed25519.Ed25519PrivateKey.generate()
    secret.write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw")))
    for path, said in (
        (nothing, "No such file"), (tmp_path, "Is a directory"), (text, "no private key in PEM"),
        (signed.public, "no private key in PEM"), (curve, "another kind than Ed25519"), (secret, "needs a password"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            Signer.load(path)
    for path, said in ((nothing, "No such file"), (text, "no public key"), (signed.private, "no public key")):
        with pytest.raises(InputError, match=said):
            Trust.load(path)
    with pytest.raises(InputError, match="names no public key"):
        Trust.load([])


def test_the_command_line(signed: Signed, tmp_path: Path) -> None:
    out = tmp_path / "m.at"
    made = invoke("compile", str(signed.model), "-o", str(out), "--untuned", "--sign", str(signed.private))
    assert made.exit_code == 0, made.stderr
    assert invoke("run", str(out), "--random", "0", "--trust", str(signed.public)).exit_code == 0
    for words in (["run", str(out), "--random", "0"], ["bench", str(out), "--against", "none"]):
        found = invoke(*words, "--trust", str(signed.stranger))
        assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
        assert "was signed with another key" in found.stderr
    assert "no compiled file" in invoke("bench", str(signed.model), "--trust", str(signed.public)).stderr
    library = invoke("compile", str(signed.model), "-o", str(tmp_path / "m.so"), "--sign", str(signed.private))
    assert "sign a library as your system signs programs" in library.stderr
    missing = invoke("compile", str(signed.model), "-o", str(out), "--sign", str(tmp_path / "none"))
    assert "cannot read the key" in missing.stderr


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_altered_is_refused(signed: Signed, data: st.DataObject) -> None:
    """All but the zeros between the parts, which nothing reads."""
    content = bytearray(signed.path.read_bytes())
    end = len(content)
    where = data.draw(st.integers(0, 600) | st.integers(end - TRAILER_BYTES, end - 1) | st.integers(0, end - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(len(content) - 2 * TRAILER_BYTES, len(content))) :]
    path = signed.path.with_name("altered.at")
    path.write_bytes(bytes(content))
    try:
        found = load_artifact(path, Trust.load(signed.public))
    except AutotuneError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        whole = load_artifact(signed.path)
        assert (found.programs, found.objects, found.runtime) == (whole.programs, whole.objects, whole.runtime)
