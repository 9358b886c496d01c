"""Ray Train's XGBoostTrainer (V2) as its guide to fault tolerance shows it: checkpoints, FailureConfig, resumption.

`RayTrainReportCallback(frequency=5)` reports the metrics of the rounds between too, and the controller takes one report
in 2 s: 100 rounds would last 200 s. So only checkpoints are reported, which is the quickest that Ray Train can do.
"""

import os
from pathlib import Path

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"

import ray
import ray.data
import ray.train
from job import LABEL, PARAMS, Stopwatch, parser
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer


class CheckpointCallback(RayTrainReportCallback):
    def _report_metrics(self, report_dict: dict) -> None:
        """Say nothing of rounds without a checkpoint."""


def train_one_worker(config: dict) -> None:
    import xgboost as xgb
    from progress import Progress

    checkpoint = ray.train.get_checkpoint()
    model = None if checkpoint is None else RayTrainReportCallback.get_model(checkpoint)
    done = 0 if model is None else model.num_boosted_rounds()
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    matrix = xgb.DMatrix(frame.drop(columns=config["label"]), label=frame[config["label"]])
    del frame
    callbacks = [
        Progress(Path(config["progress"]), ray.train.get_context().get_world_rank()),
        CheckpointCallback(frequency=config["checkpoint_every"]),
    ]
    xgb.train(config["params"], matrix, config["rounds"] - done, xgb_model=model, callbacks=callbacks)


if __name__ == "__main__":
    arguments = parser()
    arguments.add_argument("--progress", type=Path, required=True)
    arguments.add_argument("--checkpoint-every", type=int, default=5)
    job = arguments.parse_args()
    watch = Stopwatch()

    # Ray Data needs a CPU besides those of the 2 trainers. CPUs are what Ray counts: the cores stay the same two.
    ray.init(address="local", num_cpus=3)
    trainer = XGBoostTrainer(
        train_one_worker,
        train_loop_config={
            "label": LABEL,
            "params": PARAMS,
            "rounds": job.rounds,
            "progress": str(job.progress),
            "checkpoint_every": job.checkpoint_every,
        },
        datasets={"train": ray.data.read_parquet(str(job.data))},
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=ray.train.RunConfig(
            name="bench",
            storage_path=str(job.out.parent / "ray-train"),
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
        ),
    )
    watch.lap("start")
    result = trainer.fit()
    watch.lap("fit")
    RayTrainReportCallback.get_model(result.checkpoint).save_model(job.out)
    ray.shutdown()
    watch.lap("stop")
    watch.report()
