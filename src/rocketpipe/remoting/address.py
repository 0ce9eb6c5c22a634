"""Where a server listens: a host and a port, written `host:port`."""

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple, NoReturn, Self

from rocketpipe.errors import InvalidSetting

PORT_MAX = 65535

_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>[^][]*)]|(?P<name>[^][:]*)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host, by name or number, and a port; port 0 asks a server to take any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The address that `host:port` or `[ipv6]:port` stands for, or InvalidSetting."""

        def refuse(why: str) -> NoReturn:
            raise InvalidSetting(f"{text!r} is not an address: {why}")

        match = _HOST_AND_PORT.fullmatch(text)
        if match is None:
            if text.count(":") > 1 and "[" not in text:
                refuse("an IPv6 address is written in brackets, as in [::1]:9876")
            refuse("write host:port, as in 127.0.0.1:9876")
        port = int(match["port"])
        if port > PORT_MAX:
            refuse(f"the port is greater than {PORT_MAX}")
        if match["ipv6"] is not None:
            try:
                IPv6Address(match["ipv6"])
            except ValueError:
                refuse("what is in brackets is not an IPv6 address")
            return cls(match["ipv6"], port)
        host = match["name"]
        if not host:
            refuse("the host is missing")
        if host.startswith(".") or not host.isprintable() or set(host) & set(" /@?#,;"):
            refuse("the host is not a name or an IP number")
        return cls(host, port)

    @lru_cache(maxsize=4096)  # noqa: B019 - addresses are few, and every attempt to send names one
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
