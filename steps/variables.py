"""`${NAME}` and `${NAME:-default}` in YAML texts; `$${` stands for `${` itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from steps.secrets import is_secret_name

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPRESSION = re.compile(r"\$\$\{|\$\{([^}\n]*)(\}?)")
_BRACED = re.compile(r"\$\{[^}\n]*\}")
# characters that mean something to YAML travel through its scanner as private ones
_SPECIAL = "{}[],:#&*!|>%@` "
_SHIFT = 0x10F000
_HIDDEN = {ord(mark): _SHIFT + ord(mark) for mark in _SPECIAL}
_SHOWN = {hidden: mark for mark, hidden in _HIDDEN.items()}


def hide(text: str) -> str:
    """Return the text so that YAML takes each `${...}` for letters, also inside of `{a: ${B}}`.

    No line and no column moves.
    """
    return _BRACED.sub(lambda match: match[0].translate(_HIDDEN), text)


def unhide(text: str) -> str:
    """Undo `hide`."""
    return text.translate(_SHOWN)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with its variables replaced; what they hold is not expanded again.

    Raises:
        ValueError: if a variable is not set and has no default, the braces hold no name, or one
            of a secret.
    """

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, has_default, default = match[1].partition(":-")
        if not match[2] or not _NAME.fullmatch(name):
            raise ValueError(
                f"{match[0]} is not allowed: write ${{NAME}} or ${{NAME:-default}}, or $${{ for "
                "the characters themselves"
            )
        if is_secret_name(name):
            raise ValueError(
                f"{match[0]} is not allowed: by its name it is a secret, and a configuration is "
                "recorded on every run"
            )
        if has_default:
            return environ.get(name) or default
        if name not in environ:
            raise ValueError(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return environ[name]

    return _EXPRESSION.sub(replacement, text)


def has_variable(text: str) -> bool:
    """Whether `expand` may change the text."""
    return "${" in text
