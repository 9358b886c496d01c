"""Events in words, above all those of a recommender. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dray.events.format import brief, count, duration, many, metric
from dray.events.kinds import PairsFound, StepFinished, StepRepeated, UnknownEvent

_LONGEST = 200
"""Characters of an event that is not known."""


def deciding_metric(metrics: Iterable[str]) -> list[str]:
    """Return the metric by which a recommender is judged, if any: the RMSE of ratings, the NDCG of events, any."""
    names = list(metrics)
    decides = [name for name in names if name == "eval-rmse"]
    decides += [name for name in names if name.startswith("eval-ndcg@")]  # of several lengths the first does
    return [*decides, *names][:1]


def describe_epoch(done: StepFinished, noun: str, *, alone: bool) -> str:
    """Return "epoch 3 of 20, train-rmse 0.87100, 1.2 s; worker 0 on host-a 8.1M ratings/s".

    `noun` is what the rows are; `alone`: there are no workers to tell apart. Of the metrics of rankings, such as
    eval-map@10, only the one that decides has room; the summary has all.
    """
    text = f"epoch {done.round}" + (f" of {done.rounds}" if done.rounds else "")
    metrics = {name: value for name, value in done.metrics.items() if value is not None}
    deciding = deciding_metric(metrics)
    text += "".join(
        f", {name} {metric(value)}" for name, value in metrics.items() if "@" not in name or name in deciding
    )
    text += f", {duration(done.seconds)}" if done.seconds is not None else ""
    rates = [(told, told.rows_per_second) for told in done.workers or [] if told.rows_per_second is not None]
    if not rates:
        return text
    if alone:
        return f"{text}, {pace(sum(rate for _, rate in rates), noun)}"
    return f"{text}; " + ", ".join(f"{name_worker(told.worker, told.host)} {pace(rate, noun)}" for told, rate in rates)


def describe_pairs(found: PairsFound) -> str:
    """Return "1,000 rows: 800 pairs of 10 users and 20 items; view 900, purchase 100; host-a 1,000 rows"."""
    text = f"{many(found.rows, 'rows')}: {many(found.pairs, 'pairs')} of {many(found.users, 'users')}"
    text += f" and {many(found.items, 'items')}"
    types = sorted(found.types.items(), key=lambda entry: -entry[1])
    hosts = found.by_host.items() if len(found.by_host) > 1 else ()
    parts = [
        text,
        ", ".join(f"{name} {count(rows)}" for name, rows in types),
        ", ".join(f"{host} {many(rows, 'rows')}" for host, rows in hosts),
    ]
    return "; ".join(part for part in parts if part)


def describe_repetition(step: StepRepeated) -> str:
    """Return "epoch 3: its factors are not finite; it is done again with a learning rate of 0.00375"."""
    again = f"it is done again with a learning rate of {step.learning_rate:.3g}"
    return f"epoch {step.round}: {step.why.rstrip('.')}; {again}"


def describe_unknown(event: UnknownEvent) -> str:
    """Return "worker 1, rows 1000": an event that only a newer dray could put in words."""
    text = ", ".join(f"{name} {value}" for name, value in event.fields.items())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def name_worker(worker: int, host: str | None) -> str:
    return f"worker {worker}" + (f" on {host}" if host else "")


def pace(rows_per_second: float, noun: str) -> str:
    return f"{brief(rows_per_second)} {noun}/s"
