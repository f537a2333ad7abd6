"""Certificates of an authority of one's own, as people make them for a private cluster."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROLES = ("scheduler", "worker", "client")
Signer = tuple[x509.Name, ec.EllipticCurvePrivateKey]


def dask_settings(folder: Path) -> dict[str, object]:
    """Dask's configuration for TLS with a new authority, whose files lie in `folder`."""
    authority = _pair(folder, "ca", None)
    _pair(folder, "me", authority)
    tls: dict[str, object] = {"distributed.comm.tls.ca-file": str(folder / "ca.pem")}
    for role in ROLES:
        tls[f"distributed.comm.tls.{role}.cert"] = str(folder / "me.pem")
        tls[f"distributed.comm.tls.{role}.key"] = str(folder / "me.key")
    return {"distributed.comm.require-encryption": True, **tls}


def _pair(folder: Path, name: str, signer: Signer | None) -> Signer:
    """A key and its certificate, signed by another or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{folder.name} {name}")])
    issuer, by = signer or (subject, key)
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .sign(by, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.key").write_bytes(private)
    return subject, key
