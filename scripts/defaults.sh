#!/usr/bin/env bash
# Measures what the defaults of retrieval were chosen by: BM25's k and b, λ, fusion, reranking, interpolation.
# Usage: scripts/defaults.sh DATA OUT     (DATA holds pubmed/, bioasq/ and pubmedqa/; about 45 minutes on 2 cores)
set -euo pipefail
data=$1 out=$2
biorag=${BIORAG:-biorag}
mkdir -p "$out"

row() { # row LABEL FILE : one line of the table
    python3 - "$1" "$2" <<'PY' | tee -a "$out/table.txt"
import json
import sys

label, file = sys.argv[1:]
report = json.load(open(file))
figures = "  ".join(f"{name} {report['metrics'][name]:.4f}" for name in ("nDCG@10", "MAP@10", "success@5"))
print(f"{label:<24} {report['dataset']:<9} {figures}")
PY
}

measure() { # measure LABEL NAME OPTION... : both development sets into OUT/LABEL.DATASET.json
    local label=$1 name=$2 dataset
    shift 2
    for dataset in bioasq pubmedqa; do
        "$biorag" bench retrieval "$data/$dataset" --name "$name" --json "$@" >"$out/$label.$dataset.json"
        row "$label" "$out/$label.$dataset.json"
    done
}

for parameters in "0.9 0.4" "1.2 0.75"; do
    read -r k b <<<"$parameters"
    BIORAG_BM25_K=$k BIORAG_BM25_B=$b "$biorag" index "$data/pubmed/snippets.jsonl.gz" --name "bm25-$k-$b" --encoder minilm --json >/dev/null
    measure "bm25 k=$k b=$b" "bm25-$k-$b" --mode bm25 --no-rerank
done
name=bm25-0.9-0.4
measure "dense" "$name" --mode dense --no-rerank
measure "hybrid rrf" "$name" --fusion rrf --no-rerank
for lambda in 0.01 0.02 0.03 0.04 0.05; do
    measure "hybrid λ=$lambda" "$name" --lambda "$lambda" --no-rerank
done
for interpolation in 0 0.5 1; do
    BIORAG_INTERPOLATION=$interpolation measure "hybrid+rerank w=$interpolation" "$name"
done
measure "dense+rerank" "$name" --mode dense
measure "bm25+rerank" "$name" --mode bm25
