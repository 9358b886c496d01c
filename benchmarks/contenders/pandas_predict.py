"""pandas, Booster.predict and to_parquet, in one process."""

import pandas as pd
import xgboost as xgb
from job import LABEL, Stopwatch, parser

if __name__ == "__main__":
    arguments = parser()
    arguments.add_argument("--model", required=True)
    job = arguments.parse_args()
    watch = Stopwatch()

    booster = xgb.Booster(model_file=job.model)
    frame = pd.read_parquet(job.data).drop(columns=LABEL)
    watch.lap("load")
    prediction = booster.predict(xgb.DMatrix(frame))
    watch.lap("predict")
    pd.DataFrame({"prediction": prediction}).to_parquet(job.out)
    watch.lap("save")
    watch.report()
