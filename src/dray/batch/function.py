"""A function that is opened once a process, before its first item: to load a model, to set threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Tell = Callable[[Any], None]


def ignore(_told: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Context:
    """What an opened function is given by the executor."""

    threads: int
    own_process: bool
    """Whether nothing but dray runs in this process."""
    tell: Tell = ignore
    """Sends a value to the driver: at once from this machine, with the results of the batch from Ray. Any thread."""


class BatchFunction(Generic[T, R]):
    """What runs over items in place of a plain function. Pickles; `open` is called in each process that runs items."""

    opens = True
    """How a process that runs items recognises one, without loading this module for every function."""

    def open(self, context: Context) -> Callable[[T], R]:
        raise NotImplementedError


class Opened(Generic[T, R]):
    """A function of one item that is opened with the first: what fails then is that item's error."""

    def __init__(self, function: BatchFunction[T, R], context: Context) -> None:
        self._function, self._context = function, context
        self._call: Callable[[T], R] | None = None

    def __call__(self, item: T) -> R:
        if self._call is None:
            self._call = self._function.open(self._context)
        return self._call(item)


def opened(function: Callable[[Any], Any] | BatchFunction[Any, Any], context: Context) -> Callable[[Any], Any]:
    """Return a function of one item."""
    return Opened(function, context) if isinstance(function, BatchFunction) else function
