"""Certificates for tests of TLS, made as they are needed."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path]:
    """Make a certificate of `localhost` that is its own authority; gives its file and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.cert.pem", folder / f"{name}.key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, sealed))
    return cert_file, key_file


__all__ = ["certificate"]
