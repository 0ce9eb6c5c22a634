"""Apache's mqadmin, as several tests use it: many commands in one Java, and tables taken apart."""

from tests.apache.programs import mqadmin_session
from tests.apache.require import require

VERSION = "5.5.0"
TIMEOUT = 300.0


def run(namesrv: str, *commands: str) -> list[str]:
    """What each command of 5.5.0's prints, which must not be that it failed.

    Some commands work once in a Java: sendMessage and brokerConsumeStats are among them.
    """
    require(VERSION)
    outputs = mqadmin_session(VERSION, namesrv, *commands, timeout=TIMEOUT)
    for command, output in zip(commands, outputs, strict=True):
        # A client that ends may log errors of its own: only the command's are looked for.
        assert "SubCommandException" not in output, f"{command}: {output}"
        assert "CODE: " not in output, f"{command}: {output}"
    return outputs


def rows(output: str, name: str) -> list[list[str]]:
    """The lines of a table that begin with this."""
    return [line.split() for line in output.splitlines() if line.startswith(name)]
