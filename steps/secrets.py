"""Keeps the environment's secrets out of what runs record, and out of messages.

A tracking server is shared: whoever may open a run sees its params, tags and artifacts. What is
promised, and what cannot be, is docs/security.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

MASK = "***"
# `HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`, `MLFLOW_TRACKING_PASSWORD`, but not `TOKENIZERS_PARALLELISM`
_SECRET_WORDS = frozenset(
    {"TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD"}
    | {"CREDENTIAL", "CREDENTIALS", "KEY", "KEYS", "APIKEY", "PAT", "JWT"}
)
# the shell's current folder
_NO_SECRETS = frozenset({"PWD", "OLDPWD"})
# shorter ones also stand within numbers and words that mean nothing
_SHORTEST = 8
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#'\"<>]*@")
_SIGNATURE = re.compile(
    r"(?P<key>[?&](?:access_token|token|sig|signature|x-amz-signature|x-amz-security-token|"
    r"x-goog-signature)=)[^&\s'\"<>]+",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether an environment variable holds a secret, by its name."""
    words = re.split(r"[^A-Z]+", name.upper())
    return name not in _NO_SECRETS and not _SECRET_WORDS.isdisjoint(words)


def without_secrets(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text without users and passwords in addresses, and without secret values.

    Args:
        text: anything that is to be recorded or printed.
        environ: variables with a secret's name, whose values (of 8 characters or more) become
            `***`.
    """
    text = without_user_info(text)
    text = _SIGNATURE.sub(lambda match: match["key"] + MASK, text)
    secrets = {
        value for name, value in environ.items() if len(value) >= _SHORTEST and is_secret_name(name)
    }
    # the longest first: one may be a part of another
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def without_user_info(text: str) -> str:
    """Return the text without users and passwords in addresses."""
    return _USER_INFO.sub(lambda match: match["scheme"], text)


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """Return tags or params with `without_secrets` values."""
    return {key: without_secrets(str(value)) for key, value in values.items()}
