"""Files of keys and values, as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dray.errors import ConfigError


def read_yaml(path: str, what: str, first: str) -> dict[str, Any]:
    """Return the keys of a file, unchecked. `what` it is, "run file" say, and a `first` line that it may have."""
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read the {what} {path}: {error.strerror}.", fix="Check the path.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The {what} {path} is not UTF-8 text.", fix="Save it as UTF-8.") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"The {what} {path}{where} is not YAML: {problem}.", fix="Repair that line.") from None
    except (ValueError, ArithmeticError, RecursionError) as error:  # a number of 5,000 digits, a thousand brackets
        raise ConfigError(f"The {what} {path} cannot be read: {error}.", fix="Mend it.") from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError(
            f"The {what} {path} does not hold keys and values.", fix=f"Start it with, for instance, '{first}'."
        )
    return document
