"""A host as people write it, `10.0.0.1:10911` or `[fe80::1]:10911`, and as RocketMQ packs it."""

from functools import lru_cache
from ipaddress import ip_address

from rocketpipe.errors import InvalidMessage, MalformedRecord

PACKED_V4_BYTES = 4 + 4
PACKED_V6_BYTES = 16 + 4


# A process sees few hosts and meets them in every record, so both directions are remembered.
@lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """The IP (4 or 16 bytes) and the port (4 bytes) of `ip:port`; an IPv6 scope is left out."""
    ip, _, port = host.rpartition(":")
    bracketed = ip.startswith("[") and ip.endswith("]")
    try:
        packed = ip_address(ip[1:-1] if bracketed else ip).packed
    except ValueError as error:
        raise InvalidMessage(f"host {host!r}: {error}") from error
    if bracketed != (len(packed) == 16):
        raise InvalidMessage(f"host {host!r}: an IPv6 address, and no other, stands in brackets")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise InvalidMessage(f"host {host!r}: no port from 0 to 65535")
    return packed + int(port).to_bytes(4, "big")


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> str:
    """The `ip:port` that `pack_host` packed; an IPv6 address in brackets."""
    if len(packed) not in (PACKED_V4_BYTES, PACKED_V6_BYTES):
        raise MalformedRecord(f"a host of {len(packed)} bytes")
    port = int.from_bytes(packed[-4:], "big")
    if port > 65535:
        raise MalformedRecord(f"host {packed.hex()} has port {port}")
    ip = ip_address(packed[:-4])
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"
