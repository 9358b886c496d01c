"""What a recommender's training says on the way, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.telemetry.format import brief, count, duration, many, metric


def round_word(model: str | None) -> str:
    """Return what a round of such a model is called."""
    return "epoch" if model == "factorization" else "round"


def deciding_metric(metrics: Iterable[str]) -> list[str]:
    """Return the metric by which a recommender is judged, if any: the RMSE of ratings, the NDCG of events, any."""
    names = list(metrics)
    decides = [name for name in names if name == "eval-rmse"]
    decides += [name for name in names if name.startswith("eval-ndcg@")]  # of several lengths the first does
    return [*decides, *names][:1]


def describe_epoch(data: dict[str, Any], noun: str, *, alone: bool) -> str:
    """Return "epoch 3 of 20, train-rmse 0.87100, 1.2 s; worker 0 on host-a 8.1M ratings/s" of a round event.

    `noun` is what the rows are; `alone`: there are no workers to tell apart. Of the metrics of rankings, such as
    eval-map@10, only the one that decides has room; the summary has all.
    """
    text = f"epoch {data['round']}" + (f" of {data['rounds']}" if data.get("rounds") else "")
    metrics = {name: value for name, value in (data.get("metrics") or {}).items() if value is not None}
    deciding = deciding_metric(metrics)
    shown = [name for name in metrics if "@" not in name or name in deciding]
    text += "".join(f", {name} {metric(metrics[name])}" for name in shown)
    text += f", {duration(data['seconds'])}" if data.get("seconds") is not None else ""
    rates = [entry for entry in data.get("workers") or [] if entry.get("rows_per_second") is not None]
    if not rates:
        return text
    if alone:
        return f"{text}, {pace(sum(entry['rows_per_second'] for entry in rates), noun)}"
    each = ", ".join(f"{_worker(entry)} {pace(entry['rows_per_second'], noun)}" for entry in rates)
    return f"{text}; {each}"


def describe_events(data: dict[str, Any]) -> str:
    """Return "1,000 rows: 800 pairs of 10 users and 20 items; view 900, purchase 100; host-a 1,000 rows"."""
    text = f"{many(data['rows'], 'rows')}: {many(data['pairs'], 'pairs')} of {many(data['users'], 'users')}"
    text += f" and {many(data['items'], 'items')}"
    types = sorted((data.get("types") or {}).items(), key=lambda entry: -entry[1])
    hosts = (data.get("by_host") or {}).items()
    parts = [
        text,
        ", ".join(f"{name} {count(rows)}" for name, rows in types),
        ", ".join(f"{host} {many(rows, 'rows')}" for host, rows in hosts),
    ]
    return "; ".join(part for part in parts if part)


def describe_divergence(data: dict[str, Any]) -> str:
    """Return "epoch 3: its factors are not finite; it is done again with a learning rate of 0.00375"."""
    text = f"epoch {data['round']}"
    text += f": {str(data['why']).rstrip('.')}" if data.get("why") else ""
    if data.get("learning_rate") is None:
        return text
    return f"{text}; it is done again with a learning rate of {data['learning_rate']:.3g}"


def pace(rows_per_second: float, noun: str) -> str:
    return f"{brief(rows_per_second)} {noun}/s"


def _worker(entry: dict[str, Any]) -> str:
    return f"worker {entry['worker']}" + (f" on {entry['host']}" if entry.get("host") else "")
