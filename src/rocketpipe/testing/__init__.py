"""For the tests of those who use rocketpipe, and our own: the names of `public.py` in here.

A whole cluster, with faults at will; and simulated time, network and disk.
"""

from typing import TYPE_CHECKING

from rocketpipe.lazy_names import names_of_public

if TYPE_CHECKING:
    from rocketpipe.testing.public import *  # noqa: F403

__getattr__, __dir__ = names_of_public(__name__)
