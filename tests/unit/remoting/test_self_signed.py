"""A server that was given no certificate makes one that others can read."""

import ssl

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from rocketpipe.remoting import self_signed
from rocketpipe.remoting.self_signed import load_self_signed


def test_the_certificate_is_signed_by_its_own_key_each_time_anew() -> None:
    serials = set()
    for _ in range(20):
        self_signed._certificate_and_key.cache_clear()
        pem = self_signed._certificate_and_key()
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.verify_directly_issued_by(certificate)
        key = load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() == certificate.public_key()
        serials.add(certificate.serial_number)
    assert len(serials) == 20


def test_points_of_the_curve_are_those_of_others() -> None:
    for scalar in (1, 2, 3, 2**255, self_signed._N - 2, self_signed._N - 1):
        expected = ec.derive_private_key(scalar, ec.SECP256R1()).public_key().public_numbers()
        assert self_signed._times_base(scalar) == (expected.x, expected.y)


def test_one_process_has_one_certificate() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_self_signed(context)
    first = self_signed._certificate_and_key()
    load_self_signed(context)
    assert self_signed._certificate_and_key() is first
