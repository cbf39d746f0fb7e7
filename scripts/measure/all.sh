#!/usr/bin/env bash
# Measures a checkout beside an earlier one: tables in OUT/*.md, what they are made from in OUT/*.json.
# Usage: scripts/measure/all.sh BASE DATA OUT [PYTHON]     (BASE is a checkout, PYTHON that of an environment with PyLate;
# DATA holds pubmed/ and bioasq/; about 40 minutes on 2 cores, which nothing else may use)
set -euo pipefail
base=$1 data=$2 out=$3 pylate=${4:-}
mkdir -p "$out"

measure() { # measure NAME OPTION... : one table
    local name=$1
    shift
    python -m "scripts.measure.$name" --data "$data" --work "$out/work" --json "$out/$name.json" "$@" | tee "$out/$name.md"
}

measure warm --base "$base" # makes the indexes that cold and peers use
measure cold --base "$base"
measure busy --base "$base"
measure peers ${pylate:+--pylate "$pylate"}
measure indexing --base "$base" --rounds 2
