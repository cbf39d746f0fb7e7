#!/usr/bin/env bash
# Makes the judge of claims that comes with biorag again, from the data alone:
#
#   scripts/make_judge.sh DATA OUT
#
# DATA has claims/, pubmed/snippets.jsonl.gz, bioasq/, pubmedqa/ and mirage/benchmark.json. OUT gets `first` (a model of
# made claims), `judge` (that model, trained on people's claims), and `export`: the files of biorag/models/judge. About
# 75 minutes on two cores; an interrupted run resumes.
set -euo pipefail
data=$1 out=$2
shared=(--snippets "$data/pubmed/snippets.jsonl.gz" --answers "$data/bioasq" --answers "$data/pubmedqa"
    --guard "$data/mirage/benchmark.json" --drop-contaminated)
people=()
for set in scifact check_covid citation_integrity; do
    people+=("$data/claims/train/$set.jsonl.gz")
    shared+=(--validation-claims "$data/claims/dev/$set.jsonl.gz")
done
biorag train verifier "$data/claims/train/evidence_inference.jsonl.gz" "${shared[@]}" --made 60000 \
    --learning-rate 1.5e-4 --max-tokens 128 --evaluations 3 --out "$out/first"
biorag train verifier "${people[@]}" "${shared[@]}" --made 2000 --base "$out/first" --epochs 3 \
    --learning-rate 1e-4 --max-tokens 192 --evaluations 3 --out "$out/judge"
python - "$out/judge" "$out/export" <<'PYTHON'
import sys
from pathlib import Path

from biorag.models.exporting import write_export
from biorag.models.finding import find_encoder

record = write_export(find_encoder(sys.argv[1]), "judge", Path(sys.argv[2]), int8=True)
print(record.reason or f"model.onnx: {record.files.graph}")
PYTHON
