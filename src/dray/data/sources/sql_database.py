"""Where connections to a database come from. An address names environment variables, and never holds their values.

| address                                                 | connects with                                             |
|---------------------------------------------------------|-----------------------------------------------------------|
| `postgresql://user:${DB_PASSWORD}@host:5432/db`         | adbc-driver-postgresql; libpq's own PG* variables hold too |
| `databricks://host/sql/1.0/warehouses/id`               | databricks-sql-connector; the token from DATABRICKS_TOKEN |
| `${DATABASE_URL}`                                       | either, as the variable's value says                      |
| a function without arguments                            | whatever connection it returns: ADBC or DB-API            |

Variables are read where the connection is made: on the worker. Its environment needs them too.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from dray.data.sources.extras import load
from dray.errors import ConfigError, DataError, DrayError, StorageError
from dray.masking import holds_password, masked, passwords_in

_ADDRESS = re.compile(r"(?:postgres(?:ql)?|databricks)://|\$\{\w+\}$")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRETS = ("PGPASSWORD", "DATABRICKS_TOKEN")
_MOST_SHOWN = 300

Dialect = Literal["postgresql", "databricks", "unknown"]


def is_address(location: object) -> bool:
    return isinstance(location, str) and _ADDRESS.match(location) is not None


@dataclass(frozen=True, slots=True)
class Database:
    """How to connect. Picklable, without secrets: `connect` reads them from the environment."""

    address: str | None = None
    factory: Callable[[], Any] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse an address or function that holds a secret."""
        if isinstance(self.factory, functools.partial):
            raise ConfigError(
                "A functools.partial would carry its arguments, passwords too, to every worker.",
                fix="Give a function without arguments that reads them from the environment.",
            )
        if self.address is None:
            return
        if holds_password(self.address):
            raise StorageError(
                f"The address {self.name} holds a password.",
                fix="Put it into a variable and name that: postgresql://user:${DB_PASSWORD}@host/db.",
            )

    @property
    def name(self) -> str:
        """The address without secrets, for messages."""
        if self.address is None:
            return f"{getattr(self.factory, '__module__', '')}.{getattr(self.factory, '__qualname__', 'connection')}"
        return masked(self.address)

    @property
    def dialect(self) -> Dialect:
        scheme = self._expanded().partition("://")[0] if self.address is not None else ""
        return {"postgresql": "postgresql", "postgres": "postgresql", "databricks": "databricks"}.get(  # type: ignore[return-value]
            scheme, "unknown"
        )

    def connect(self) -> Any:
        """Return a new connection of DB-API's or ADBC's."""
        try:
            if self.factory is not None:
                return self.factory()
            if self.dialect == "postgresql":
                self._check_encoding()
                return load("adbc_driver_postgresql.dbapi").connect(self._expanded())
            if self.dialect == "databricks":
                return self._databricks()
        except DrayError:
            raise
        except Exception as error:  # database drivers raise anything
            raise StorageError(
                f"Cannot connect to {self.name}: {self.plain(error)}",
                fix="Check the address, the user, the password's variable, and that the database is running.",
            ) from None  # the driver's error may quote the password
        raise ConfigError(
            f"{self.name} is not the address of a database that dray knows.",
            fix="Use postgresql://... or databricks://..., or give a function that connects.",
        )

    def failed(self, error: Exception) -> DataError:
        """Return a database driver's error about a query as ours."""
        return DataError(
            f"{self.name} refuses the query: {self.plain(error)}",
            fix="Run the query in another client to see the error.",
        )

    def plain(self, error: BaseException) -> str:
        """Return the text of an error in one line, without secrets."""
        text = " ".join(str(error).split()) or type(error).__name__
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text[:_MOST_SHOWN]

    def _check_encoding(self) -> None:
        """Refuse a password that libpq would take for a host or a port, and then quote in its error."""
        if any(re.search(r"[/@\s]", secret) for secret in passwords_in(self._expanded())):
            raise ConfigError(
                f"The password in {self.name} has a character that an address cannot hold: a slash, an @ or a space.",
                fix="Write it percent-encoded: %2F for a slash, %40 for @, %20 for a space.",
            )

    def _databricks(self) -> Any:
        url = urlsplit(self._expanded())
        host = url.hostname or _variable("DATABRICKS_SERVER_HOSTNAME", "DATABRICKS_HOST")
        return load("databricks.sql").connect(
            server_hostname=host.removeprefix("https://").rstrip("/"),
            http_path=url.path if len(url.path) > 1 else _variable("DATABRICKS_HTTP_PATH"),
            access_token=url.password or _variable("DATABRICKS_TOKEN"),
        )

    def _expanded(self) -> str:
        address = self.address or ""
        whole = _VARIABLE.fullmatch(address)
        if whole:
            return _variable(whole[1])
        return _VARIABLE.sub(lambda found: quote(_variable(found[1]), safe=""), address)

    def _secrets(self) -> set[str]:
        found = {os.environ.get(name, "") for name in _SECRETS}
        for name in _VARIABLE.findall(self.address or ""):
            value = os.environ.get(name, "")
            written = passwords_in(value) if "://" in value else {value, quote(value, safe="")}
            found |= written | {unquote(secret) for secret in written}
        return {secret for secret in found if len(secret) >= 3}


def _variable(*names: str) -> str:
    for name in names:
        if value := os.environ.get(name):
            return value
    raise ConfigError(
        f"The variable {names[0]} is not set here.", fix=f"Set {names[0]}, on every machine that reads the database."
    )
