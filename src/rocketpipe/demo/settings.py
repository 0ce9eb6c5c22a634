"""What a demo does, and where it leaves its results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from rocketpipe.client.queue_choice import policy_settings
from rocketpipe.demo.scenario import find_scenario
from rocketpipe.errors import InvalidSetting

SECONDS_MIN = 5.0  # below that no fault has time to show
RATE_MAX = 5000.0  # more than one process can send one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """All but the folder has a default that fits a machine of two cores."""

    folder: Path  # must be new, or empty
    policy: str = "java5"
    scenario: str = "all"
    seconds: float = 70.0
    rate: float = 400.0  # messages a second
    seed: int = 1
    compare: bool = False  # all policies, one run after another
    source: Mapping[str, str] = field(default_factory=dict)  # of a cluster there is: namesrv, ...
    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)  # Spark's

    def __post_init__(self) -> None:
        policy_settings(self.policy)
        find_scenario(self.scenario)
        if not isfinite(self.seconds) or self.seconds < SECONDS_MIN:
            raise InvalidSetting(f"seconds is {self.seconds:g}: {SECONDS_MIN:g} is the least")
        if not 0 < self.rate <= RATE_MAX:
            raise InvalidSetting(f"rate is {self.rate:g}: it must be above 0, up to {RATE_MAX:g}")

    def make_folder(self) -> None:
        """InvalidSetting if something is in it: nothing is ever overwritten."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise InvalidSetting(f"out is {self.folder}: there is something in it already")
