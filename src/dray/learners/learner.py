"""The contract between dray and a learner. Importing this module loads no learner's library and no Ray.

What learners share is the attempt, not the step: an attempt is one try to train on with a fixed set of workers that
together hold all rows. It ends finished, paused (a worker joins or leaves) or broken (a worker was lost). What happens
inside it is the learner's: a ring that runs hundreds of rounds without the driver, or turns that the driver posts.

What owns what:

- The controller (`elastic/`) owns the workers: it starts and replaces them, decides which worker holds which shard, has
  shards loaded, handed over and dropped, notices losses, and starts attempts. It knows no learner.
- A learner owns what is in a shard, in a checkpoint and in an attempt. It knows no Ray, no sockets but its own, and no
  other worker than those of the attempt.

Which thread calls:

- `Learner`, `DriverSide` and `Coordinator` are called in the driver, in the controller's thread, one call at a time.
- `WorkerSide` is called in a worker's main thread, one call at a time, except what says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar

from dray.errors import WorkerError

if TYPE_CHECKING:
    import pyarrow as pa

    from dray.config.run_file import RunConfig
    from dray.data.parquet import Dataset
    from dray.events.kinds import Event
    from dray.learners.attempt import Coordinator, Loads, Runner, Surveyors
    from dray.learners.baseline import Baseline
    from dray.learners.checkpoint import Checkpoint
    from dray.learners.layouts import Sharding
    from dray.learners.predictor import Predictor
    from dray.learners.result import RunResult
    from dray.learners.row_mask import RowMask
    from dray.learners.status import Status
    from dray.runs.directory import RunDirectory
    from dray.runs.trained_on import HeldOut, TrainedOn
    from dray.storage import StorageOptions

Lane = Literal["main", "beside", "control"]
"""Where an op runs in a worker: in order with all others; beside them, while they run; at once, and it must return at
once."""

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
E = TypeVar("E")


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
    texts: bool = False
    """The values of pairs are text, as it was typed; otherwise they are YAML, where %d is an error."""
    switch: bool = False
    """On or off: --name, --no-name."""
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
        return type(self).__name__.lower()


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

    def interrupt(self, attempt: int) -> None:
        """Break off the attempt of that number, and all before it: a peer does not answer. Returns at once.

        The attempt may not have arrived here yet, or be over. A learner whose library cannot be interrupted ends its
        process instead: the worker is lost and replaced.
        """

    def stop(self) -> None:
        """End what is under way as soon as possible."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What is known of the data when its footers have been read."""

    cells: int
    """Rows x columns, or what costs as much: decides whether more workers pay."""
    features: int | None = None


@dataclass(frozen=True)
class FitPlan(Generic[E]):
    """How one fit is done."""

    coordinator: Coordinator[E]
    objective: str
    """What is minimised, for the user."""
    reasons: tuple[str, ...]
    """What was decided on the way, and why."""
    rounds: int
    """Steps at most."""


class DriverSide(Protocol):
    """The learner's side of the driver: one for each session. One thread calls its methods, in this order."""

    earlier: Sequence[TrainedOn]
    """What the model that the run goes on from was trained on, run by run; empty for a new model."""
    rows_must_be_new: bool
    """Metrics would be wrong on rows that an earlier run was trained on."""

    def held_out(self) -> HeldOut | None:
        """Return which rows of the data are held out, in the terms of `runs/trained_on.py`. Asked after `open`."""

    def check_schema(self, schema: pa.Schema, *, evaluation: bool) -> None:
        """Refuse data whose columns do not fit. Called before the data is converted, and again after."""

    def open(self, train: Dataset, evaluation: Dataset | None) -> Opened:
        """Take in the footers; refuse what cannot work."""

    def begin(self, *, alone: bool) -> None:
        """Begin, in a thread, what can be read while the workers start."""

    def survey(self, workers: Surveyors, latest: Checkpoint) -> Sharding:
        """Find out, with the workers, what the footers do not say; return what is to be loaded.

        `latest` is the checkpoint that a resumed run goes on from.
        """

    def begin_fit(self, fit: Fit, loads: Loads, runner: Runner) -> FitPlan[Any]:
        """Plan one fit on the loaded data; refuse what does not fit the labels."""

    def conclude(self, end: Any, runner: Runner) -> TrainedModel:
        """Make the model of what the coordinator finished with."""

    def close(self) -> None:
        """End what `begin` began."""


@dataclass(frozen=True)
class Fit:
    """One fit of a session."""

    number: int
    """From 1."""
    config: Any
    """Of the learner's class; like the session's but for keys that loaded data does not depend on."""
    latest: Checkpoint
    """The checkpoint to go on from."""
    last: bool
    """No other fit follows: what is loaded need not be kept."""
    rows: RowMask | None = None
    """The rows to train on; None: all of them."""


class TrainedModel(Protocol):
    """A model, in the driver."""

    digest: str
    objective: str
    rounds: int
    best_round: int
    metrics: dict[str, float]
    baseline: Baseline
    """What the metrics are read against; `NO_BASELINE` where there is no such thing."""
    model: Any
    """The learner's own object, as `dray.load` returns it."""

    def write(self, location: str, storage: StorageOptions) -> None:
        """Write the model alone, in the learner's own form."""

    def save(self, directory: RunDirectory) -> None:
        """Write the model, and what another run needs to go on from it."""

    def result(self, directory: RunDirectory, common: Mapping[str, Any]) -> RunResult:
        """Return the result of a run: `common` are the fields that do not depend on the learner."""


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
    fit_fields: frozenset[str]
    """Keys of the configuration that may differ from one fit of a session to the next; another value of any other key
    needs another session."""

    @property
    def Config(self) -> type[RunConfig]:  # noqa: N802
        """The class of its configuration: the common keys and its own. Loads pydantic, not the learner's library."""

    def check(self, config: Any) -> None:
        """Raise for parameters that the model does not have, or not with such values, before anything begins."""

    def worker_side(self, number: int, threads: int) -> WorkerSide:
        """Return its side of the worker of that number.

        Called in the worker's process, after the threads are set; loads its library.
        """

    def driver_side(self, config: Any, storage: StorageOptions, emit: Callable[[Event], object]) -> DriverSide:
        """Return its side of the driver for one session; `emit` reports events. Reads the run to go on from, if any."""

    def result(self, document: Mapping[str, Any], storage: StorageOptions) -> RunResult:
        """Return the result that a job reported (`RunResult.to_json`), with the model from its run directory."""

    def recognises(self, location: str, storage: StorageOptions) -> bool:
        """Whether a location that is not a run holds a model of this learner. Looks, and loads nothing."""

    def open(self, location: str, storage: StorageOptions) -> Predictor:
        """Open the model of a finished run of this learner, or what it `recognises`."""
