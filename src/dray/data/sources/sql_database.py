"""Where connections to a database come from. An address names variables of the environment, never holds their values.

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
from urllib.parse import parse_qs, quote, unquote, urlsplit

from dray.data.sources.extras import load
from dray.errors import ConfigError, DataError, DrayError, StorageError

_ADDRESS = re.compile(r"(?:postgres(?:ql)?|databricks)://|\$\{\w+\}$")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRETS = ("PGPASSWORD", "DATABRICKS_TOKEN")
_MOST_SHOWN = 300

Dialect = Literal["postgresql", "databricks", "unknown"]


def is_address(location: object) -> bool:
    return isinstance(location, str) and _ADDRESS.match(location) is not None


@dataclass(frozen=True, slots=True)
class Database:
    """How to connect. Picklable, and without a secret: connecting reads those from the environment."""

    address: str | None = None
    factory: Callable[[], Any] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse what holds a secret itself."""
        if isinstance(self.factory, functools.partial):
            raise ConfigError(
                "A functools.partial would carry its arguments, passwords too, to every worker.",
                fix="Give a function without arguments that reads them from the environment.",
            )
        if self.address is None:
            return
        url = urlsplit(self.address)
        password = url.password or "".join(parse_qs(url.query).get("password", []))
        if password and not _VARIABLE.fullmatch(password):
            raise StorageError(
                f"The address {self.name} holds a password.",
                fix="Put it into a variable and name that: postgresql://user:${DB_PASSWORD}@host/db.",
            )

    @property
    def name(self) -> str:
        """The address as it may be shown."""
        if self.address is None:
            return f"{getattr(self.factory, '__module__', '')}.{getattr(self.factory, '__qualname__', 'connection')}"
        shown = re.sub(r"(//[^/:@]*:)[^@/]*@", r"\1***@", self.address)
        return re.sub(r"(password=)[^&]*", r"\1***", shown)

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
                return load("adbc_driver_postgresql.dbapi").connect(self._expanded())
            if self.dialect == "databricks":
                return self._databricks()
        except DrayError:
            raise
        except Exception as error:  # drivers raise what they like
            raise StorageError(
                f"Cannot connect to {self.name}: {self.plain(error)}",
                fix="Check the address, the user and the password's variable, and that the database runs.",
            ) from None  # the driver's error may quote the password
        raise ConfigError(
            f"{self.name} is no address of a database that dray knows.",
            fix="Use postgresql://... or databricks://..., or give a function that connects.",
        )

    def failed(self, error: Exception) -> DataError:
        """Return what a driver's error about a query means."""
        return DataError(f"{self.name} refuses the query: {self.plain(error)}", fix="Try the query by itself first.")

    def plain(self, error: BaseException) -> str:
        """Return the text of an error in one line, without secrets."""
        text = " ".join(str(error).split()) or type(error).__name__
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text[:_MOST_SHOWN]

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
            url = urlsplit(value) if "://" in value else None
            found |= {url.password or "", unquote(url.password or "")} if url else {value, quote(value, safe="")}
            found |= {"".join(parse_qs(url.query).get("password", []))} if url else set()
        return {secret for secret in found if len(secret) >= 3}


def _variable(*names: str) -> str:
    for name in names:
        if value := os.environ.get(name):
            return value
    raise ConfigError(
        f"The variable {names[0]} is not set here.", fix=f"Set {names[0]}, on every machine that reads the database."
    )
