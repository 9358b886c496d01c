"""dray: train tabular models on one machine or on a Ray cluster, with one command: the same model everywhere.

    result = dray.train("data/", label="y", workers=2)
    dray.predict(result.directory, "data/", "predictions/")
    model = dray.load(result.directory)
    dray.recommend("runs/...", top=10, out="lists/")  # a run of model factorization
    result = dray.resume("runs/...")  # one that was interrupted
    results = list(dray.map(function, items))
    dray.describe("data.csv", label="y")
    dray.ingest("data.csv", "data/", filter="price > 0", test=0.2)

Names load on first use: importing dray imports nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself would take longer to load than all of this
if TYPE_CHECKING:
    from dray.api import ingest, load, predict, recommend, resume, session, train
    from dray.data.describe import describe
    from dray.errors import (
        ClusterError,
        ConfigError,
        DataError,
        DrayError,
        ItemError,
        ModelError,
        StorageError,
        WorkerError,
    )
    from dray.ingesting.written import IngestResult
    from dray.learners.factorization.model import FactorModel
    from dray.learners.factorization.result import FactorResult
    from dray.learners.result import FitResult
    from dray.learners.xgboost.model import Model
    from dray.learners.xgboost.result import TrainResult
    from dray.mapping.map import map
    from dray.predicting.predict import PredictResult
    from dray.recommending.recommend import RecommendResult
    from dray.training.session import Session

__version__ = "0.2.0"

_HOME = {
    "ClusterError": "dray.errors",
    "ConfigError": "dray.errors",
    "DataError": "dray.errors",
    "DrayError": "dray.errors",
    "FactorModel": "dray.learners.factorization.model",
    "FactorResult": "dray.learners.factorization.result",
    "FitResult": "dray.learners.result",
    "IngestResult": "dray.ingesting.written",
    "ItemError": "dray.errors",
    "Model": "dray.learners.xgboost.model",
    "ModelError": "dray.errors",
    "PredictResult": "dray.predicting.predict",
    "RecommendResult": "dray.recommending.recommend",
    "Session": "dray.training.session",
    "StorageError": "dray.errors",
    "TrainResult": "dray.learners.xgboost.result",
    "WorkerError": "dray.errors",
    "describe": "dray.data.describe",
    "ingest": "dray.api",
    "load": "dray.api",
    "map": "dray.mapping.map",
    "predict": "dray.api",
    "recommend": "dray.api",
    "resume": "dray.api",
    "session": "dray.api",
    "train": "dray.api",
}

__all__ = [
    "ClusterError",
    "ConfigError",
    "DataError",
    "DrayError",
    "FactorModel",
    "FactorResult",
    "FitResult",
    "IngestResult",
    "ItemError",
    "Model",
    "ModelError",
    "PredictResult",
    "RecommendResult",
    "Session",
    "StorageError",
    "TrainResult",
    "WorkerError",
    "__version__",
    "describe",
    "ingest",
    "load",
    "map",
    "predict",
    "recommend",
    "resume",
    "session",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dray' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
