"""pandas and XGBoost in one process, with all its cores: what most people write first."""

import pandas as pd
import xgboost as xgb
from job import LABEL, PARAMS, Stopwatch, parser

if __name__ == "__main__":
    arguments = parser()
    arguments.add_argument("--matrix", choices=["DMatrix", "QuantileDMatrix"], default="DMatrix")
    job = arguments.parse_args()
    watch = Stopwatch()

    frame = pd.read_parquet(job.data)
    matrix = getattr(xgb, job.matrix)(frame.drop(columns=LABEL), label=frame[LABEL])
    del frame
    watch.lap("load")
    booster = xgb.train(PARAMS, matrix, num_boost_round=job.rounds)
    watch.lap("train")
    booster.save_model(job.out)
    watch.lap("save")
    watch.report()
