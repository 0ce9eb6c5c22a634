"""Who a client is on this machine."""

import os
from ipaddress import ip_address

from rocketpipe.client.environment import Environment
from rocketpipe.remoting.address import Address


def test_our_ip_is_the_one_that_the_name_server_sees() -> None:
    assert Environment().local_ip(Address("127.0.0.1", 9876)) == "127.0.0.1"


def test_a_name_server_given_by_name_is_not_looked_up() -> None:
    # Nor is that an excuse to be 127.0.0.1 everywhere, where there is a network.
    there = Environment().local_ip(Address("no-such-host.invalid", 9876))
    elsewhere = Environment().local_ip(Address("192.0.2.1", 9))
    assert there == elsewhere
    ip_address(there)


def test_an_ip_that_nobody_can_be_reached_from_is_not_taken() -> None:
    assert Environment().local_ip(Address("::ffff:0:0:1", 9876)) != ""


def test_what_is_handed_in_counts() -> None:
    environment = Environment(ip="10.0.0.1", pid=7)
    assert environment.local_ip(Address("127.0.0.1", 9876)) == "10.0.0.1"
    assert environment.process_id() == 7
    assert Environment().process_id() == os.getpid()
