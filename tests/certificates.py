"""Certificates for tests of TLS, as files that Python and Java can read."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Certificates:
    """The files of an authority, and of a server and a client it vouches for."""

    def __init__(self, folder: Path, server_name: str = "127.0.0.1") -> None:
        authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        self.server = _issue(authority, folder / "server", server_name)
        self.client = _issue(authority, folder / "client", "client.example")


def _issue(authority: trustme.CA, stem: Path, name: str) -> tuple[str, str]:
    issued = authority.issue_cert(name)
    cert, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    # 4.9.4 reads private keys in PKCS #8 only.
    private = load_pem_private_key(issued.private_key_pem.bytes(), None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(cert), str(key)
