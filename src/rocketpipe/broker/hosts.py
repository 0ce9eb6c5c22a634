"""Hosts as records name them: by number."""

from functools import lru_cache

from rocketpipe.errors import InvalidMessage
from rocketpipe.host import pack_host


@lru_cache(maxsize=4096)  # every message of a client comes from the same host
def packed_host(address: str) -> bytes:
    """A `host:port` as records hold it. A name that is no number becomes 127.0.0.1: records have
    no room for names, and only a broker told so by its settings, or a simulation, has them."""
    try:
        return pack_host(address)
    except InvalidMessage:
        return pack_host(f"127.0.0.1:{address.rpartition(':')[2]}")
