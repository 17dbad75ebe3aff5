"""What must not be shown: keys, passwords in addresses, headers that say who asks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

__all__ = ["HIDDEN", "Secrets", "is_credential", "shown_address", "shown_headers"]

#: What stands in the place of a secret.
HIDDEN = "…"

#: Shorter secrets would take ordinary words apart.
_SHORTEST = 4
#: Characters of a secret from which on a part of it at the end of a cut text is hidden.
_SHORTEST_PART = 6
_CREDENTIAL = re.compile(
    r"auth|api.?key|token|secret|cookie|credential|password|signature|(?:^|[-_])key$", re.IGNORECASE
)
_USERINFO = re.compile(r"(//|^)([^/?#\s]*)@")


def shown_address(url: str) -> str:
    """Return an address as it may be shown: without a user name and password."""
    return _USERINFO.sub(r"\1", url, count=1)


def is_credential(name: str) -> bool:
    """Say whether a header of that name may tell who asks."""
    return _CREDENTIAL.search(name) is not None


def shown_headers(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return headers as they may be shown: without the values of credentials."""
    return {
        name: HIDDEN if value and is_credential(name) else value for name, value in headers.items()
    }


class Secrets:
    """Hide secrets in texts, also as `repr`, JSON and addresses write them.

    Args:
        values: Keys, tokens, header values; empty and very short ones are left out.
        addresses: Addresses whose passwords are secret.
    """

    def __init__(self, values: Iterable[str | None] = (), *, addresses: Iterable[str] = ()) -> None:
        known = [value for value in values if value]
        for address in addresses:
            found = _USERINFO.search(address)
            if found:
                userinfo = found[2]
                known += [userinfo, userinfo.partition(":")[2]]
        forms: set[str] = set()
        for value in known:
            for plain in (value, value.strip(), unquote(value)):
                forms |= _forms(plain)
        #: The longest first: one may be a part of another.
        self._forms = sorted((f for f in forms if len(f) >= _SHORTEST), key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<{len(self._forms)} hidden texts>"

    def hide(self, text: str, *, cut: bool = False) -> str:
        """Return a text without the secrets.

        Args:
            text: Anything that is to be shown.
            cut: Whether the text is the beginning of a longer one: then a secret may have been
                cut, too, and its beginning at the end of the text is hidden.
        """
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        if not cut:
            return text
        for form in self._forms:
            for length in range(min(len(form), len(text)), _SHORTEST_PART - 1, -1):
                if text.endswith(form[:length]):
                    return text[:-length] + HIDDEN
        return text


def _forms(secret: str) -> set[str]:
    """Return how a secret may be written."""
    try:
        quoted = {quote(secret, safe=""), quote(secret)}
    except UnicodeEncodeError:
        quoted = set[str]()
    escaped = json.dumps(secret)[1:-1]
    return {
        secret,
        repr(secret)[1:-1],
        repr(secret.encode(errors="replace"))[2:-1],
        escaped,
        escaped.replace("/", "\\/"),
        *quoted,
    }
