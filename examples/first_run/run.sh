#!/usr/bin/env bash
# From a CSV file to a model and its predictions: the bicycles that a city rents out, hour by hour.
set -euo pipefail
here=${1:-first_run}
examples=$(cd "$(dirname "$0")" && pwd)
rm -rf "$here"
mkdir -p "$here"

step() { printf '\n\033[1m%s\033[0m\n' "$1"; }

step "1. The data: two years of rentals with the weather, made here, as a CSV file"
python "$examples/make_rentals.py" "$here/rentals.csv" "$here/next_week.csv"
dray data describe "$here/rentals.csv" --label rentals

step "2. Train, in one process: a fifth of the hours is set aside, to see how good the model is on hours it does not know"
dray train "$here/rentals.csv" --label rentals --times parts --eval-fraction 0.2 --rounds 80 --early-stop 10 \
	--out "$here/run"

step "3. What matters"
python "$examples/what_matters.py" "$here/run"

step "4. The same on two Ray workers, as on a cluster: the same model, to the last bit"
dray train "$here/rentals.csv" --label rentals --times parts --eval-fraction 0.2 --rounds 80 --early-stop 10 \
	--workers 2 --out "$here/run_on_workers"
python "$examples/what_matters.py" --same "$here/run" "$here/run_on_workers"

step "5. Predict next week, of which nobody knows the rentals yet"
dray predict "$here/run" "$here/next_week.csv" "$here/predictions.csv" --key time
sed -n '1p; 7,14p' "$here/predictions.csv"

echo
echo "Results:"
echo "  the run, with its model, metrics and events: $here/run"
echo "  the predictions, hour by hour:               $here/predictions.csv"
