"""The names of Apache's settings: those that mean something here, and those that do not."""

from collections.abc import Mapping

from rocketpipe.broker.settings import BrokerSettings

# Each setting that a broker of 5.5.0 reads, its remoting and its ACL included; one a line.
_NAMES = "apache_settings.txt"


def split_settings(settings: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """The settings as texts, without those that Apache knows and that have no effect here.

    The names of these come second. One that nobody knows stays: BrokerSettings will refuse it.
    """
    ours = BrokerSettings.names()
    foreign = _foreign() if settings.keys() - ours else frozenset()  # seldom, and it is a file
    texts = {name: _text(value) for name, value in settings.items() if name not in foreign}
    return texts, [name for name in settings if name in foreign]


def _foreign() -> frozenset[str]:
    from importlib.resources import files  # late: it imports much

    text = files("rocketpipe.broker").joinpath(_NAMES).read_text()
    return frozenset(text.split()) - BrokerSettings.names()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
