"""The contract between dray and a learner. Importing this module loads no learner's library and no Ray.

What learners share is the attempt, not the step: an attempt is one try to train on with a fixed set of workers that
together hold all rows. It ends finished, paused (a worker joins or leaves) or broken (a worker was lost). What happens
inside it is the learner's: a ring that runs hundreds of rounds without the driver, or turns that the driver posts.

Who owns what:

- The controller (`elastic/`) owns the workers: it starts and replaces them, decides which worker holds which shard, has
  shards loaded, handed over and dropped, notices losses, and starts attempts. It knows no learner.
- A learner owns what is in a shard, in a checkpoint and in an attempt. It knows no Ray, no sockets but its own, and no
  other worker than those of the attempt.

Which thread calls:

- `Learner` and `Coordinator` are called in the driver, in the controller's thread, one call at a time.
- `WorkerSide` is called in a worker's main thread, one call at a time, except what says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar

from dray.errors import WorkerError

if TYPE_CHECKING:
    from dray.config.run_file import RunConfig
    from dray.learners.checkpoint import Checkpoint
    from dray.learners.predictor import Predictor
    from dray.learners.status import Status
    from dray.storage import StorageOptions

Lane = Literal["main", "beside", "control"]
"""Where an op runs in a worker: in order with all others; beside them, while they run; at once, and it must return at
once."""

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Words:
    """What a learner calls its things, for every message."""

    step: str
    """One of `rounds` or `epochs`: "round", "epoch"."""
    rows: str = "rows"


@dataclass(frozen=True, slots=True)
class Flag:
    """A key of a learner's own as a flag of `dray train`. `--help` shows it, so it loads nothing."""

    key: str
    help: str
    metavar: str | None = None
    type: type = str
    choices: tuple[str, ...] = ()
    repeated: bool = False
    """May be given more than once: the key is a list."""
    pairs: bool = False
    """NAME=VALUE, may be repeated: put over those of the run file, or of the default."""
    name: str = ""
    """Without dashes; by default as the key."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that a training tells."""

    name: str
    higher_is_better: bool
    decides: bool = False
    """Early stopping and the best step go by this one."""


class Op(Generic[P, R_co]):
    """A message to a worker: what to do there. Frozen, picklable, small.

    A kind of op is a frozen dataclass that inherits from this class and overrides `__call__`, whose first argument is
    the worker's side of the learner; `Do` makes one of a method. What is large, or stays where it was made, is not a
    field: it is passed beside the op, as an input (`Group.call`).
    """

    lane: Lane = "main"
    keeps: int = 0
    """Results that stay on the worker: the op returns a tuple, of a value that is sent back and so many more."""
    lazy: bool = False
    """Inputs that another worker makes are passed as `Awaited`; the op calls `get` when it needs one."""

    def __call__(self, side: Any, *inputs: P.args, **named: P.kwargs) -> R_co:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class Do(Op[P, R_co]):
    """A method of the worker's side, as an op: its arguments are the op's inputs, and mypy checks them."""

    method: Callable[Concatenate[Any, P], R_co]
    keeps: int = 0
    lane: Lane = "main"
    lazy: bool = False

    def __call__(self, side: Any, *inputs: P.args, **named: P.kwargs) -> R_co:
        return self.method(side, *inputs, **named)

    @property
    def name(self) -> str:
        return self.method.__name__


class InputGone(WorkerError):  # noqa: N818  (of the input, not of the worker that was to get it)
    """The input of a call was lost with the worker that had it: the worker that was called is not to blame."""


class PeerCut(InputGone):
    """An input is where it was made, and the worker that needs it cannot reach that node."""


class WorkerSide(Protocol):
    """The learner's side of a worker. These may be called from any thread; the rest is the learner's own."""

    def status(self, after_round: int) -> Status:
        """Tell how the worker is doing, with the steps after that one."""

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is at hand, if the worker has any."""

    def stop(self) -> None:
        """End what is under way as soon as possible."""


class Learner(Protocol):
    """One kind of model. One object for each name, without state."""

    name: str
    """The word after `--model`, and the folder's name."""
    summary: str
    """One line for `--help`."""
    extra: str
    """The extra of dray that brings its library: `pip install 'dray[extra]'`; empty when dray itself does."""
    library: str
    """The package that computes, as it is installed and imported: another version of it may give another model."""
    default_rounds: str
    """The default of `rounds` in words, for `--help`."""
    flags: tuple[Flag, ...]
    """The keys of its own as flags of `dray train`, in the order of `--help`."""
    words: Words
    layout: Literal["rows", "keyed"]
    """Shards that are loaded alone, or units by key that need an exchange of rows between workers."""
    data_fields: frozenset[str]
    """Keys of the configuration that loaded data depends on: another value needs another session."""
    interruptible: bool
    """An attempt can be interrupted from within; if not, the controller ends the process."""

    @property
    def Config(self) -> type[RunConfig]:  # noqa: N802
        """The class of its configuration: the common keys and its own. Loads pydantic, not the learner's library."""

    def check(self, config: Any) -> None:
        """Raise for parameters that the model does not have, or not with such values, before anything begins."""

    def worker_side(self, number: int, threads: int) -> WorkerSide:
        """Return its side of the worker of that number.

        Called in the worker's process, after the threads are set; loads its library.
        """

    def recognises(self, location: str, storage: StorageOptions) -> bool:
        """Whether a location that is not a run holds a model of this learner. Looks, and loads nothing."""

    def open(self, location: str, storage: StorageOptions) -> Predictor:
        """Open the model of a finished run of this learner, or what it `recognises`."""
