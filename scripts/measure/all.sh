#!/usr/bin/env bash
# Measures a checkout beside an earlier one: tables in OUT/*.md, what they are made from in OUT/*.json.
# Usage: scripts/measure/all.sh BASE DATA OUT     (BASE is a checkout; DATA holds pubmed/ and bioasq/; about 30 minutes
# on 2 cores, which nothing else may use)
set -euo pipefail
base=$1 data=$2 out=$3
question="Which vitamin is given with isoniazid to prevent neuropathy?"
mkdir -p "$out"

measure() { # measure NAME SCRIPT OPTION... : one table
    local name=$1 script=$2
    shift 2
    python -m "scripts.measure.$script" --base "$base" --work "$out/work" --json "$out/$name.json" "$@" |
        tee "$out/$name.md"
}

measure warm warm --data "$data" # makes the indexes that the cold starts search
measure indexing indexing --data "$data" --rounds 2
measure cold-search paired -- biorag search "$question" --name pubmed --json
measure cold-bm25 paired -- biorag search "$question" --name pubmed --json --mode bm25 --no-rerank
measure cold-ask paired -- biorag ask "$question" --name pubmed --json
