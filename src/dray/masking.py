"""Passwords in text that holds addresses: whether there are any, and the text without them. Pure.

People write passwords as they are, not percent-encoded: `postgresql://bob:s3cr/et@host`. A parser of URLs takes `bob`
for the host there, so the text is searched instead: everything between the first colon and the last `@` of an
address is its password. This may hide more of an address than the secret; it never shows a secret.

| text                                     | shown as                          |
|------------------------------------------|-----------------------------------|
| `postgresql://bob:s3cr/e@t@host/db`      | `postgresql://bob:***@host/db`    |
| `https://token@host`, `https://a:b@host` | `https://***@host`                |
| `postgresql://host/db?user=a&password=b` | `postgresql://host/db?user=a&password=***` |
| `host=h user=u password='a b'`           | `host=h user=u password=***`      |
| `postgresql://bob:${DB_PASSWORD}@host`   | as it is: a variable's name is not secret |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

MASK = "***"
_SCHEME = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*)://")
_WEB = re.compile(r"(?:git\+)?https?|wss?|ftp", re.IGNORECASE)
_FILES = re.compile(r"s3[an]?|gs|gcs|file|hdfs|viewfs|dbfs|abfss?|wasbs?|ray|(?:git\+)?ssh|sftp", re.IGNORECASE)
"""Names of files may have a colon and an @: a password is before the first slash, if there is one."""
_PORT = re.compile(r"\d{1,5}(?=[/?#])")
# What follows a variable may be a second host, but not a second password.
_VARIABLE = re.compile(r"\$\{\w+\}(?:$|@(?!.*:(?!\d{1,5}(?:[/?#,]|$)|\$\{)))", re.DOTALL)
_SECRET_KEY = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|(?:^|[_-])(?:PWD|AUTH|SAS|SIG|SIGNATURE)(?:[_-]|$)",
    re.IGNORECASE,
)
_IN_QUERY = re.compile(r"[?&;]([^=&?;@/\s]+)=")
# Not behind a slash: that is a directory of a partitioned data set. Not with ==: that is a condition of a filter.
_IN_TEXT = re.compile(
    r"(?i)(?<![\w./-])[\w.-]*(?:password|passwd|passphrase|(?<![A-Za-z])pwd|secret_?access_?key|client_?secret|access_?token)"
    r"\s*=(?!=\s)\s*('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[^\s;&]+)"
)


def masked(text: str) -> str:
    """Return the text with *** in the place of every password. Masking a second time changes nothing."""
    parts, done = [], 0
    for start, stop in sorted(_secrets(text)):
        if stop > done:
            parts += [text[done : max(start, done)], MASK if start >= done else ""]
            done = stop
    return "".join([*parts, text[done:]])


def holds_password(text: str) -> bool:
    """Whether an address in the text has a password; one that names a variable, ${DB_PASSWORD}, has none."""
    return any(True for _ in _secrets(text))


def passwords_in(text: str) -> set[str]:
    """Return the passwords in the text, as they are written."""
    return {text[start:stop] for start, stop in _secrets(text)}


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each secret in the text."""
    if "://" in text:
        for scheme in _SCHEME.finditer(text):
            # A text that is an address has it to its end; in a sentence it ends with the word.
            stop = len(text) if not text[: scheme.start()].strip() else _word_end(text, scheme.end())
            yield from _in_address(text, scheme[1], scheme.end(), stop)
    if "=" in text:
        for found in _IN_TEXT.finditer(text):
            if not _is_harmless(found[1].strip("'\"")):
                yield found.span(1)


def _in_address(text: str, scheme: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    at = text.rfind("@", start, stop)
    colon = text.find(":", start, at) if at >= 0 else -1
    slash = text.find("/", start, at) if at >= 0 else -1
    web, files = _WEB.fullmatch(scheme), _FILES.fullmatch(scheme)
    if colon >= 0 and (slash < 0 or colon < slash or not (web or files)):
        secret = text[colon + 1 : at]
        port = web and _PORT.match(secret)
        arn = text.startswith("arn:", start) and "/" in secret  # s3://arn:aws:s3:...:accesspoint/name
        if secret and not port and not arn and not _is_harmless(secret):
            yield (start if web else colon + 1), at
    elif web and at > start and slash < 0 and not _is_harmless(text[start:at], "git"):
        yield start, at
    for found in _IN_QUERY.finditer(text, start, stop):
        rest = text[found.end() : stop]
        value = re.split("[&;#]", rest)[0]
        named = _SECRET_KEY.search(unquote(found[1])) or ("%" in value and holds_password(unquote(value)))
        if rest and named and not _is_harmless(value):
            yield found.end(), stop  # to the end: where an unescaped value stops cannot be known
            break


def _is_harmless(secret: str, *names: str) -> bool:
    return secret in (MASK, "", *names) or _VARIABLE.match(secret) is not None


def _word_end(text: str, start: int) -> int:
    found = re.compile(r"\s").search(text, start)
    return found.start() if found else len(text)
