"""The signature by which a broker knows its users: the 4.x ACL's and 5.x authentication's alike."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import field

from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a client is. Its repr keeps the secrets to itself."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            value = getattr(self, name)
            is_left_out = name == "security_token" and value is None
            if not is_left_out and (not isinstance(value, str) or not value):
                # Without the value, which may be a secret.
                raise InvalidSetting(f"{name} must be text that is not empty")


def signed_fields(
    ext_fields: Mapping[str, str], body: bytes | None, credentials: Credentials
) -> dict[str, str]:
    """The ext fields to send: with user and signature. Whatever is added later breaks it."""
    fields = {**ext_fields, ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = sign(fields, body, credentials.secret_key)
    return fields


def sign(ext_fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """The signature of a request, whose ext fields already name its user."""
    return signature(signed_content(ext_fields, body), secret_key)


def is_signed_by(ext_fields: Mapping[str, str], body: bytes | None, secret_key: str) -> bool:
    """Whether a request carries the right signature."""
    import hmac  # brokers without users need none, and start faster

    claimed = ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
    return hmac.compare_digest(claimed, sign(ext_fields, body, secret_key).encode())


def signed_content(ext_fields: Mapping[str, str], body: bytes | None) -> bytes:
    """What is signed: the values of all ext fields in the order of their names, then the body."""
    values = [ext_fields[name] for name in sorted(ext_fields) if name != SIGNATURE]
    return "".join(values).encode("utf-8", "replace") + (body or b"")  # as Java, which never fails


def signature(content: bytes, secret_key: str) -> str:
    """HMAC-SHA1 in base64 (AclSigner.calSignature)."""
    import hmac

    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
