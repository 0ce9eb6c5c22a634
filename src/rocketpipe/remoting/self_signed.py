"""A certificate for a server that was given none: each process makes one, for which nobody vouches.

Apache's servers do the same, so its clients can try TLS without any files. The standard library
reads certificates but makes none, so here is the little of X.509 and of P-256 that it takes. It is
not hardened against those who can measure how long it takes: it serves tests.
"""

import base64
import hashlib
import secrets
import ssl
import tempfile
from functools import cache
from typing import Final, NamedTuple

# The curve P-256 (FIPS 186-4, D.1.2.3): its field, the order of its base point, and that point.
_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE_X: Final = 0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296
_BASE_Y: Final = 0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5

_NAME: Final = "rocketpipe self-signed"
_VALID: Final = ("200101000000Z", "491231235959Z")  # any clock is in between

# Object identifiers, as their DER bytes.
_EC_PUBLIC_KEY: Final = bytes.fromhex("06072a8648ce3d0201")
_PRIME256V1: Final = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_WITH_SHA256: Final = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME: Final = bytes.fromhex("0603550403")


def load_self_signed(context: ssl.SSLContext) -> None:
    """Let the context show this process's own certificate."""
    # The ssl module takes files only. This one is readable by us alone, and gone at once.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(_certificate_and_key())
        file.flush()
        context.load_cert_chain(file.name)


@cache
def _certificate_and_key() -> bytes:
    secret = _any_scalar()
    x, y = _times_base(secret)
    public = _bits(b"\x04" + x.to_bytes(32) + y.to_bytes(32))
    name = _sequence(_der(0x31, _sequence(_COMMON_NAME, _der(0x0C, _NAME.encode()))))
    signed_with = _sequence(_ECDSA_WITH_SHA256)
    content = _sequence(
        _der(0xA0, _integer(2)),  # version 3
        _integer(secrets.randbits(63) + 1),  # serial number
        signed_with,
        name,  # of who vouches for it: itself
        _sequence(*(_der(0x17, moment.encode()) for moment in _VALID)),
        name,
        _sequence(_sequence(_EC_PUBLIC_KEY, _PRIME256V1), public),
    )
    certificate = _sequence(content, signed_with, _bits(_sign(content, secret)))
    key = _sequence(
        _integer(1),
        _der(0x04, secret.to_bytes(32)),
        _der(0xA0, _PRIME256V1),
        _der(0xA1, public),
    )
    return _pem("EC PRIVATE KEY", key) + _pem("CERTIFICATE", certificate)


def _sign(content: bytes, secret: int) -> bytes:
    """ECDSA with SHA-256."""
    digest = int.from_bytes(hashlib.sha256(content).digest())
    while True:
        once = _any_scalar()
        r = _times_base(once)[0] % _N
        s = pow(once, -1, _N) * (digest + r * secret) % _N
        if r and s:
            return _sequence(_integer(r), _integer(s))


def _any_scalar() -> int:
    return secrets.randbelow(_N - 1) + 1


class _Point(NamedTuple):
    """In Jacobian coordinates, which need no division: (x / z², y / z³)."""

    x: int
    y: int
    z: int


def _times_base(scalar: int) -> tuple[int, int]:
    """The base point, so many times: double and add, from the highest bit down."""
    base = total = _Point(_BASE_X, _BASE_Y, 1)
    for bit in f"{scalar:b}"[1:]:
        total = _doubled(total)
        if bit == "1":
            total = _sum(total, base)
    inverse = pow(total.z, -1, _P)
    return total.x * inverse**2 % _P, total.y * inverse**3 % _P


def _doubled(point: _Point) -> _Point:
    x, y, z = point
    z2 = z * z % _P
    y2 = y * y % _P
    slope = 3 * (x - z2) * (x + z2) % _P  # as the curve's a is -3
    s = 4 * x * y2 % _P
    new_x = (slope * slope - 2 * s) % _P
    return _Point(new_x, (slope * (s - new_x) - 8 * y2 * y2) % _P, 2 * y * z % _P)


def _sum(point: _Point, base: _Point) -> _Point:
    # They are never equal or opposite here: the scalar is below the order of the base point.
    x, y, z = point
    z2 = z * z % _P
    h = (base.x * z2 - x) % _P
    r = (base.y * z2 * z - y) % _P
    h2 = h * h % _P
    h3 = h2 * h % _P
    new_x = (r * r - h3 - 2 * x * h2) % _P
    return _Point(new_x, (r * (x * h2 - new_x) - y * h3) % _P, z * h % _P)


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, b"".join(parts))


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\x00" + content)


def _pem(label: str, content: bytes) -> bytes:
    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode()
