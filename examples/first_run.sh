#!/usr/bin/env bash
# The main job from end to end: make data, train on two local Ray workers, predict.
set -euo pipefail
here=${1:-first_run}
rm -rf "$here"
mkdir -p "$here"

echo "1. Make a small data set"
dray data make "$here/data" --rows 200000 --features 28 --files 8

echo
echo "2. Train on it with two Ray workers of this machine"
dray train "$here/data" --label label --workers 2 --rounds 60 --eval-fraction 0.2 --early-stop 10 --out "$here/run"

echo
echo "3. Predict"
dray predict "$here/run" "$here/data" "$here/predictions" --keep label

echo
echo "Results:"
echo "  the run, with its model, metrics and events: $here/run"
echo "  the predictions, file by file:               $here/predictions"
