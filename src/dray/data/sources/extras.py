"""Libraries that only some sources need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dray.errors import ConfigError

_EXTRAS = {
    "deltalake": ("delta", "Delta Lake tables"),
    "adbc_driver_postgresql.dbapi": ("postgres", "PostgreSQL"),
    "duckdb": ("duckdb", "DuckDB databases"),
    "databricks.sql": ("databricks", "Databricks SQL warehouses"),
}


def load(module: str) -> Any:
    """Return a module; if it is missing, raise an error that names the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        extra, what = _EXTRAS[module]
        raise ConfigError(
            f"{what} need {module.partition('.')[0]}, which is not installed ({error}).",
            fix=f"pip install 'dray[{extra}]', on every machine that reads.",
        ) from error
