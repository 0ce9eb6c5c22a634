"""The docs of the embedded cluster tell of every argument, fault, option and setting."""

import inspect
import re
from pathlib import Path

import pytest

from rocketpipe.broker.access.rules_file import read_rules
from rocketpipe.broker.faults import FaultControl
from rocketpipe.broker.settings import CHANGEABLE, BrokerSettings
from rocketpipe.cli import main
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.tls_properties import NAMES
from rocketpipe.testing import EmbeddedCluster

FOLDER = Path(__file__).parents[2] / "docs"
DOCS = (FOLDER / "embedded-cluster.md").read_text()
SETTINGS = (FOLDER / "embedded-settings.md").read_text()


def section(title: str) -> str:
    return DOCS.split(f"## {title}\n")[1].split("\n## ")[0]


def first_column(text: str) -> set[str]:
    cells = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w-]+)", cell)}


def test_every_argument_is_told() -> None:
    known = set(inspect.signature(EmbeddedCluster).parameters)
    assert first_column(section("In a test or a program")) == known


def test_every_fault_is_told() -> None:
    methods = {name for name in vars(FaultControl) if not name.startswith("_")}
    assert first_column(section("Faults on purpose")) == methods - {"add", "active", "clear"}


def test_every_setting_is_told_once_with_its_default() -> None:
    cluster = {  # ours are told by their names, and these of RocketMQ's follow from them
        *("brokerName", "brokerId", "brokerIP1", "listenPort", "namesrvAddr")
    }
    brokers = BrokerSettings.names() - cluster
    known = {*brokers, *(f"namesrv.{name}" for name in NameServerSettings().to_config())}
    cells = re.findall(r"^\| (`[a-z][\w.`, ]*`) \| (?:`(.*?)`)? ?\|", SETTINGS + DOCS, re.MULTILINE)
    told = [
        (name, default)
        for names, default in cells
        for name in re.findall(r"[\w.]+", names)
        if name in known
    ]
    assert sorted(name for name, _ in told) == sorted(known)
    defaults = {
        **BrokerSettings().to_properties(),
        **{f"namesrv.{name}": text for name, text in NameServerSettings().to_config().items()},
    }
    assert dict(told) == {name: defaults.get(name, "") for name in known}


def test_every_line_of_the_settings_is_about_a_setting() -> None:
    names = set(re.findall(r"^\| `(.*?)` \|", SETTINGS, re.MULTILINE))
    assert names <= BrokerSettings.names() | {
        f"namesrv.{each}" for each in NameServerSettings().to_config()
    }


def test_what_can_be_changed_while_it_runs_is_told() -> None:
    text = SETTINGS.split("## While it runs\n")[1].split("refused:\n")[1]
    assert re.findall(r"`(\w+)`", text) == sorted(CHANGEABLE)


def test_every_option_of_serve_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    known = set(re.findall(r"^  (--[\w-]+)", capsys.readouterr().out, re.MULTILINE))
    assert first_column(section("In a process of its own")) == known


def test_every_setting_of_tls_is_told() -> None:
    names = set(re.findall(r"`(tls\.[\w.]+)`", section("TLS")))
    assert names == NAMES


def test_every_setting_of_access_is_told_and_the_file_shown_can_be_read(tmp_path: Path) -> None:
    text = section("Who may ask what: ACL")
    words = ("acl", "authentication", "authorization")
    known = {name for name in BrokerSettings().to_properties() if name.startswith(words)}
    assert first_column(text) == {"aclFile", *known}
    file = tmp_path / "acl.toml"
    file.write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    rules = read_rules(file)
    assert rules.inner_client is not None
    assert rules.plain.accounts
    assert rules.auth.entries
