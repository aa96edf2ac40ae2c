#!/usr/bin/env bash
# From a fresh clone to report.html in under 3 minutes, installation included; the run in under 30 s.
# What the demo says fits in 120 lines. Prints all three; exits 0 only when all are reached.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone --quiet "$source" "$folder/paceline"
cd "$folder/paceline"

start=$SECONDS
make demo | tee said.txt
whole=$((SECONDS - start)) lines=$(wc -l < said.txt)
test -s report.html

start=$SECONDS
.venv/bin/paceline run smoke --new --out again --quiet
alone=$((SECONDS - start))

echo "clone to report.html: $whole s (limit 180), in $lines lines (limit 120);" \
  "paceline run smoke: $alone s (limit 30)"
[ "$whole" -lt 180 ] && [ "$lines" -le 120 ] && [ "$alone" -le 30 ]
