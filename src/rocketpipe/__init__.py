"""RocketMQ for Python and Spark: the names of `public.py`."""

from typing import TYPE_CHECKING

from rocketpipe.lazy_names import names_of_public

if TYPE_CHECKING:
    from rocketpipe.public import *  # noqa: F403

__getattr__, __dir__ = names_of_public(__name__)
