"""docs/embedded-cluster.md tells of every argument, fault and option."""

import inspect
import re
from pathlib import Path

import pytest

from rocketpipe.broker.access.rules_file import read_rules
from rocketpipe.broker.faults import FaultControl
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.cli import main
from rocketpipe.remoting.tls_properties import NAMES
from rocketpipe.testing import EmbeddedCluster

DOCS = (Path(__file__).parents[2] / "docs" / "embedded-cluster.md").read_text()


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


def test_every_setting_of_pop_is_told_with_its_default() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", section("POP"), re.MULTILINE))
    defaults = BrokerSettings().to_properties()
    assert told == {name: defaults.get(name) for name in told}
    assert {name for name in defaults if "pop" in name.lower()} <= told.keys()


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
