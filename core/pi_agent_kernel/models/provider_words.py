"""A provider's own words about a failure: found in its answer, and made fit to be shown.

Whatever answers writes them, so nothing about them is sure: neither their length, nor that they
are JSON, nor that they are text at all.
"""

from __future__ import annotations

import json
import re
from typing import cast

__all__ = ["WEB_PAGE", "clean", "is_web_page", "json_of", "own_words", "raw_words"]

WEB_PAGE = "it answered with a web page"

#: Control characters except those that `str.split` takes for spaces, and lone surrogates.
_UNFIT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\x80-\x84\x86-\x9f\ud800-\udfff]")


def clean(text: str) -> str:
    """Replace what no text file and no terminal can show as it is: controls, lone surrogates."""
    return _UNFIT.sub("\ufffd", text)


def is_web_page(text: str) -> bool:
    """Say whether a text is a page of HTML."""
    return text[:400].lower().lstrip().startswith(("<!doctype", "<html"))


def json_of(text: str | bytes) -> object:
    """Return the JSON in a text, or None if it is none or is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def own_words(error: Exception) -> str:
    """Return what the provider said, out of the object it comes in."""
    body: object = getattr(error, "body", None)
    if isinstance(body, str) and body.lstrip().startswith(("{", "[")):
        found = json_of(body)
        body = body.strip() if found is None else found
    for _ in range(3):  # [{"error": {"message": ...}}], {"message": ...}, {"detail": ...}
        if isinstance(body, list) and body:
            body = cast("list[object]", body)[0]
        if isinstance(body, dict):
            fields = cast("dict[str, object]", body)
            known = ("error", "Error", "message", "Message", "detail")
            body = next((fields[name] for name in known if fields.get(name)), None)
    return body if isinstance(body, str) else raw_words(error)


def raw_words(error: Exception) -> str:
    """Return the text of an error as it is."""
    return str(getattr(error, "message", None) or error or type(error).__name__)
