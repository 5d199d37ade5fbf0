#!/bin/sh
# Bakes what fleet.toml says in an array of jobs, and merges what they made: SHARDS=5 sh submit.sh
set -eu
cd "$(dirname "$0")"
export SHARDS="${SHARDS:-5}"
array=$(sbatch --parsable --export=ALL --array="1-$SHARDS" shard.sbatch)
merge=$(sbatch --parsable --export=ALL --dependency="afterok:$array" merge.sbatch)
echo "array $array, then merge $merge: fleet.pbk"
