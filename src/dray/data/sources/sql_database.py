"""Where connections to a database come from. An address names environment variables, and never holds their values.

| address                                                 | connects with                                             |
|---------------------------------------------------------|-----------------------------------------------------------|
| `postgresql://user:${DB_PASSWORD}@host:5432/db`         | adbc-driver-postgresql; libpq's own PG* variables hold too |
| `databricks://host/sql/1.0/warehouses/id`               | databricks-sql-connector; the token from DATABRICKS_TOKEN |
| `sqlite:///data.db`, `sqlite:////home/me/data.db`       | Python's own sqlite3, read-only                           |
| `duckdb:data.db`, `duckdb:///data.db`                   | duckdb, read-only                                         |
| `${DATABASE_URL}`                                       | one of these, as the variable's value says                |
| a function without arguments, or its name               | whatever connection it returns: ADBC or DB-API            |
| (`module:function`)                                     |                                                           |

Variables are read where the connection is made: on the worker. Its environment needs them too.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from dray.data.sources.extras import load
from dray.errors import ConfigError, DataError, DrayError, StorageError
from dray.functions import load_function
from dray.masking import holds_password, masked, passwords_in
from dray.storage import absolute

_ADDRESS = re.compile(r"(?:postgres(?:ql)?|databricks|sqlite)://|duckdb:|\$\{\w+\}$")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FILE = re.compile(r"(sqlite)://(?:/(.*))?|(duckdb):(?:///)?(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRETS = ("PGPASSWORD", "DATABRICKS_TOKEN")
_MOST_SHOWN = 300

Dialect = Literal["postgresql", "databricks", "sqlite", "duckdb", "unknown"]
_DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgresql", "postgres": "postgresql", "databricks": "databricks", "sqlite": "sqlite",
    "duckdb": "duckdb",
}  # fmt: skip


def is_address(location: object) -> bool:
    """Whether a location is that of a database, or names a function that connects to one."""
    return isinstance(location, str) and (_ADDRESS.match(location) is not None or _is_function(location))


def database_of(location: str) -> Database:
    """Return the database at an address. The path of a file becomes absolute: workers have other directories."""
    found = _FILE.fullmatch(location)
    if found is None or not (path := found[2] or found[4]):
        return Database(location)
    return Database(f"{found[1] or found[3]}:///{absolute(path)}")


def _is_function(location: str) -> bool:
    return _FUNCTION.fullmatch(location) is not None and not Path(location).exists()


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
        scheme = self._expanded().partition(":")[0] if self.address is not None else ""
        return _DIALECTS.get(scheme, "unknown")

    def connect(self) -> Any:
        """Return a new connection of DB-API's or ADBC's."""
        try:
            if self.factory is not None:
                return self._checked(self.factory())
            if self.dialect == "postgresql":
                self._check_encoding()
                return load("adbc_driver_postgresql.dbapi").connect(self._expanded())
            if self.dialect == "databricks":
                return self._databricks()
            if self.dialect in ("sqlite", "duckdb"):
                return _connect_to_file(self.dialect, self._expanded())
            if self.address is not None and _is_function(self.address):
                return self._checked(load_function(self.address)())
        except DrayError:
            raise
        except Exception as error:  # database drivers raise anything
            raise StorageError(
                f"Cannot connect to {self.name}: {self.plain(error)}",
                fix="Check the address, the user, the password's variable, and that the database is running.",
            ) from None  # the driver's error may quote the password
        raise ConfigError(
            f"{self.name} is not the address of a database that dray knows.",
            fix="Use postgresql://..., databricks://..., sqlite:///file, duckdb:file, or the name of a function that "
            "connects: module:function.",
        )

    def _checked(self, connection: Any) -> Any:
        if not (hasattr(connection, "cursor") and hasattr(connection, "close")):
            raise ConfigError(
                f"{self.name} returned {type(connection).__name__}, which is not a connection of ADBC or DB-API.",
                fix="Have the function return what a driver's connect() returns, such as sqlite3.connect(path).",
            )
        return connection

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


def _connect_to_file(dialect: Dialect, address: str) -> Any:
    """Return a connection that only reads."""
    found = _FILE.fullmatch(address)
    path = Path((found[2] or found[4] or "") if found else "")
    if not path.is_file():
        raise DataError(
            f"There is no {dialect} database {path}.",
            fix=f"Check the path: {dialect}:///data.db is in the working directory, {dialect}:////home/me/data.db is "
            "absolute.",
        )
    if dialect == "duckdb":
        return load("duckdb").connect(str(path), read_only=True)
    # Several threads may read a source, one after another.
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, check_same_thread=False)


def _variable(*names: str) -> str:
    for name in names:
        if value := os.environ.get(name):
            return value
    raise ConfigError(
        f"The variable {names[0]} is not set here.", fix=f"Set {names[0]}, on every machine that reads the database."
    )
