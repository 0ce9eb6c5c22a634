"""How a field of ours is called on the wire."""

import re
from typing import Annotated, Any, get_origin


def wire_name(name: str, hint: Any) -> str:
    """Java's name: ours in camelCase, unless the annotation says another.

    An exception is spelled out where it is declared: `client_id: Annotated[str, "clientID"]`.
    """
    if get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], str):
        return hint.__metadata__[0]
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)
