"""xgboost.dask on a LocalCluster of 2 workers with 1 thread each, in a loop of its user's.

"Resilience is not yet supported", it says when a worker dies, so what can be done is to try again: XGBoost's own
callback keeps a model every 5 rounds, Dask's nanny starts the worker again, and Dask computes the lost partitions anew.
"""

from pathlib import Path

import dask.dataframe as dd
import xgboost as xgb
from dask.distributed import Client, LocalCluster
from job import LABEL, PARAMS, Stopwatch, parser
from progress import Progress
from xgboost import dask as dxgb

ATTEMPTS = 4
WORKERS = 2


def latest_model(directory: Path) -> xgb.Booster | None:
    found = [xgb.Booster(model_file=file) for file in directory.glob("*.ubj")]
    return max(found, key=xgb.Booster.num_boosted_rounds, default=None)


# Dask's workers import this file again: nothing may run outside the guard.
if __name__ == "__main__":
    arguments = parser()
    arguments.add_argument("--progress", type=Path, required=True)
    arguments.add_argument("--checkpoint-every", type=int, default=5)
    job = arguments.parse_args()
    watch = Stopwatch()
    checkpoints = job.out.parent / "dask-checkpoints"
    checkpoints.mkdir()

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        watch.lap("start")
        # Persisted, or Dask fuses the small label partitions and XGBoost refuses the mismatch with the features'.
        frame = client.persist(dd.read_parquet(job.data))
        for attempt in range(1, ATTEMPTS + 1):
            model = latest_model(checkpoints)
            try:
                client.wait_for_workers(WORKERS)
                matrix = dxgb.DaskQuantileDMatrix(client, frame.drop(columns=LABEL), frame[LABEL])
                output = dxgb.train(
                    client,
                    PARAMS,
                    matrix,
                    num_boost_round=job.rounds - (0 if model is None else model.num_boosted_rounds()),
                    xgb_model=model,
                    callbacks=[
                        Progress(job.progress),
                        xgb.callback.TrainingCheckPoint(checkpoints, interval=job.checkpoint_every),
                    ],
                )
                break
            except Exception:
                if attempt == ATTEMPTS:
                    raise
        watch.lap("train")
        output["booster"].save_model(job.out)
    watch.lap("stop")
    watch.report()
