from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidSetting
from rocketpipe.wire.signature import Credentials, is_signed_by, signed_fields

USER = Credentials("alice", "s3cret", "t0ken")


def test_credentials_keep_their_secrets_to_themselves() -> None:
    assert repr(USER) == "Credentials(access_key='alice')"


@pytest.mark.parametrize("part", ["access_key", "secret_key", "security_token"])
@pytest.mark.parametrize("value", [b"bytes", ""])
def test_credentials_that_can_not_sign_are_refused_without_telling_them(
    part: str, value: Any
) -> None:
    parts: dict[str, Any] = {"access_key": "alice", "secret_key": "s3cret", part: value}
    with pytest.raises(InvalidSetting, match=f"^{part} must be text that is not empty$"):
        Credentials(**parts)
    with pytest.raises(InvalidSetting):
        Credentials("alice", None)  # type: ignore[arg-type]  # a variable that was not set


@given(st.dictionaries(st.text(), st.text(st.characters())), st.none() | st.binary())
def test_a_request_is_known_by_its_signature(fields: dict[str, str], body: bytes | None) -> None:
    sent = signed_fields(fields, body, USER)
    assert is_signed_by(sent, body, "s3cret")
    assert not is_signed_by(sent, body, "another")
    assert not is_signed_by({**sent, "AccessKey": "mallory"}, body, "s3cret")
    assert not is_signed_by(sent, (body or b"") + b"x", "s3cret")
    assert not is_signed_by({**sent, "Signature": "é\ud800"}, body, "s3cret")


def test_signing_again_changes_nothing_and_leaves_the_callers_fields_alone() -> None:
    fields = {"b": "2", "a": "1"}
    sent = signed_fields(fields, b"", USER)
    assert signed_fields(sent, b"", USER) == sent
    assert fields == {"b": "2", "a": "1"}
