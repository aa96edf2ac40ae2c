#!/usr/bin/env bash
# From a fresh clone to report.html in under 3 minutes, installation included; the run in under 30 s.
# Prints both times; exits 0 only when both are reached.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone --quiet "$source" "$folder/paceline"
cd "$folder/paceline"

start=$SECONDS
make demo
whole=$((SECONDS - start))
test -s report.html

start=$SECONDS
.venv/bin/paceline run smoke --new --out again --quiet
alone=$((SECONDS - start))

echo "clone to report.html: $whole s (limit 180); paceline run smoke: $alone s (limit 30)"
[ "$whole" -lt 180 ] && [ "$alone" -le 30 ]
