"""Where the browser tests find and keep things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Pictures for a person to look at; the folder is ignored by git.
PICTURES = ROOT / ".artifacts" / "browser"
