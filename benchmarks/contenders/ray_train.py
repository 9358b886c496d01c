"""Ray Train's XGBoostTrainer (V2) on 2 workers with 1 CPU each, as its documentation shows it, but for the report.

`RayTrainReportCallback()` reports after every round, and the controller takes one report in 2 s: 100 rounds would
last 200 s. So the model is reported once, at the end, which is the quickest that Ray Train can do.
"""

import os
import tempfile
import time
from pathlib import Path

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"

import ray
import ray.data
import ray.train
from job import LABEL, PARAMS, Stopwatch, parser
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer


def train_one_worker(config: dict) -> None:
    import xgboost as xgb

    started = time.time()
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    matrix = xgb.DMatrix(frame.drop(columns=config["label"]), label=frame[config["label"]])
    del frame
    loaded = time.time()
    booster = xgb.train(config["params"], matrix, num_boost_round=config["rounds"])
    times = {"started": started, "loaded": loaded, "trained": time.time()}
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            booster.save_model(Path(directory, RayTrainReportCallback.CHECKPOINT_NAME))
            checkpoint = ray.train.Checkpoint.from_directory(directory)
        ray.train.report(times, checkpoint=checkpoint)


if __name__ == "__main__":
    job = parser().parse_args()
    watch = Stopwatch()

    # Ray Data needs a CPU besides those of the 2 trainers. CPUs are what Ray counts: the cores stay the same two.
    ray.init(address="local", num_cpus=3)
    trainer = XGBoostTrainer(
        train_one_worker,
        train_loop_config={"label": LABEL, "params": PARAMS, "rounds": job.rounds},
        datasets={"train": ray.data.read_parquet(str(job.data))},
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=ray.train.RunConfig(name="bench", storage_path=str(job.out.parent / "ray-train")),
    )
    watch.lap("start")
    asked = time.time()
    result = trainer.fit()
    RayTrainReportCallback.get_model(result.checkpoint).save_model(job.out)
    times = result.metrics
    ray.shutdown()
    watch.report(
        start=watch.seconds["start"] + times["started"] - asked,
        load=times["loaded"] - times["started"],
        train=times["trained"] - times["loaded"],
        stop=time.time() - times["trained"],
    )
