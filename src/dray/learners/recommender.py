"""The contract of a model that recommends. Importing this module loads no learner's library.

A learner whose models recommend has `open_recommender` (`RecommenderLearner`); a model of it that is in memory, as
`dray.load` returns one, has `recommender` (`RecommendingModel`).

What belongs to which side:

- The caller (`recommending/`) owns where lists are made, which users each task gets, the files that are written and
  what is reported. It turns events into Parquet, and ids that a user names into arrays. It knows no learner.
- A recommender owns its ids and which columns of events it reads, what it makes of the events of a new user, and how it
  ranks items. It knows no Ray and no output files but those of `export`.

A recommender is made in the driver and is sent to the processes that make lists: with a `location` it pickles, and
reads its files again there when they are needed. One thread uses it at a time; `lists` may start threads of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from dray.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from dray.data.shards import Slice
    from dray.storage import StorageOptions

FOLD_IN = "fold-in"
"""How a list was made: from the events of a user that the model does not know."""
POPULARITY = "popularity"
"""How a list was made: of what is popular, for a user or an item that the model does not know."""


@dataclass(frozen=True, slots=True)
class ListQuestion:
    """What the lists of many users are to hold."""

    top: int
    exclude_seen: bool = True
    items: pa.Array | None = None
    """To choose from; None are all."""

    def __post_init__(self) -> None:
        require_some(self.top)


class NewUsers(Protocol):
    """Users that the model does not know, with what it needs of their events. Pickles."""

    @property
    def ids(self) -> pa.Array:
        """Ascending."""
        ...

    def between(self, begin: int, end: int) -> NewUsers:
        """Return those from `begin` to before `end`."""
        ...

    def only(self, wanted: pa.Array) -> NewUsers:
        """Return those that `wanted` names."""
        ...


@dataclass(frozen=True, slots=True)
class EventUsers:
    """The users of some events."""

    known: pa.Array
    """Those that the model knows already; their events are not used."""
    new: NewUsers
    unknown_items: int
    """Pairs of new users with an item that the model does not know: left out."""
    without_ids: int = 0
    """Events that were left out because they have no user or no item, or one that the model's ids cannot be."""


Users: TypeAlias = "range | pa.Array | NewUsers"
"""Users to make lists for: some of the model's own by their positions in `user_ids`, any by their ids, or new ones."""


class Ranked(Protocol):
    """A list of items, the best first."""

    @property
    def items(self) -> pa.Array: ...

    @property
    def scores(self) -> npt.NDArray[np.float32]: ...

    @property
    def by(self) -> str:
        """How it was made: `POPULARITY`, `FOLD_IN`, or the learner's own word."""
        ...


class Recommender(Protocol):
    """A model that recommends."""

    location: str | None
    """Where its files are; None for a model that is in memory only, which no other process can use."""
    user_column: str
    """The columns of users and of items in the data that it was trained on."""
    item_column: str

    @property
    def user_ids(self) -> pa.Array:
        """The users that it has, as text or int64."""
        ...

    @property
    def item_ids(self) -> pa.Array: ...

    def count_unknown(self, items: pa.Array) -> int:
        """Return how many of these items it does not know."""
        ...

    def check_events(self, schema: pa.Schema) -> None:
        """Refuse events without the columns that it reads, by a `DataError`."""
        ...

    def read_users(self, slices: Sequence[Slice], storage: StorageOptions) -> EventUsers:
        """Read events as training does, and refuse what training refuses."""
        ...

    def lists(self, users: Users, question: ListQuestion, threads: int) -> Iterator[pa.Table]:
        """Yield lists as rows of user, rank, item, score, by; in bounded memory, whatever the number of users.

        The lists of one table were all made in the same way (`by`), and a user's list is in one table.
        """
        ...

    def similar(self, item: str | int, top: int) -> Ranked:
        """Return the items that are most like an item."""
        ...

    def export(
        self, location: str, side: Literal["users", "items"], *, bias_in_vector: bool, storage: StorageOptions
    ) -> None:
        """Write ids and vectors as Parquet, for an index of nearest neighbours.

        A model without vectors refuses by a `ModelError`.
        """
        ...


@runtime_checkable
class RecommenderLearner(Protocol):
    """What a learner has beside the contract `Learner` if its models recommend."""

    name: str

    def open_recommender(self, location: str, storage: StorageOptions) -> Recommender:
        """Open the model of a finished run of this learner, or what it `recognises`."""
        ...


class RecommendingModel(Protocol):
    """A model in memory that recommends, of any learner."""

    def recommender(self) -> Recommender: ...


def recommends(learner: Any) -> bool:
    """Whether the models of a learner recommend."""
    return isinstance(learner, RecommenderLearner)


def require_some(top: int) -> None:
    """Refuse lists without items."""
    if top < 1:
        raise ConfigError(f"{top} items were asked for.", fix="Ask for at least one: --top 1.")
