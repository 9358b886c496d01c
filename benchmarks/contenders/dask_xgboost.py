"""xgboost.dask on a LocalCluster of 2 workers with 1 thread each."""

import dask.dataframe as dd
from dask.distributed import Client, LocalCluster
from job import LABEL, PARAMS, Stopwatch, parser
from xgboost import dask as dxgb

# Dask's workers import this file again: nothing may run outside the guard.
if __name__ == "__main__":
    job = parser().parse_args()
    watch = Stopwatch()

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        watch.lap("start")
        # Persisted, or Dask fuses the small label partitions and XGBoost refuses the mismatch with the features'.
        frame = client.persist(dd.read_parquet(job.data))
        matrix = dxgb.DaskQuantileDMatrix(client, frame.drop(columns=LABEL), frame[LABEL])
        watch.lap("load")
        # The matrix is binned inside train, so "train" has a part of the loading.
        output = dxgb.train(client, PARAMS, matrix, num_boost_round=job.rounds)
        watch.lap("train")
        output["booster"].save_model(job.out)
        watch.lap("save")
    watch.lap("stop")
    watch.report()
