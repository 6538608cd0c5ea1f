#!/usr/bin/env bash
# Measures experiments/h200-smollm2.yaml in STUDY and waits SECONDS for it; call it again to go on waiting.
#   study.sh STUDY OUT SECONDS
# Writes what was measured so far to OUT/results.tar.part*, without server logs but with their last lines.
set -euo pipefail
study=$1 out=$2 seconds=$3
cd "$study"
config=experiments/h200-smollm2.yaml
export HOME=${HOME:-/root} DRAFTBENCH_TEX=none
if [ ! -e study.started ]; then
  date -u +%FT%TZ > study.started
  nvidia-smi > nvidia-smi.txt
  .venvs/serving/bin/python -m pip list 2> /dev/null > pip-list.txt || python3 -m pip list > pip-list.txt
  setsid bash -c "
    .venvs/driver/bin/snakemake plan --configfile $config --cores all --resources gpus=1
    .venvs/driver/bin/snakemake --configfile $config --cores all --resources gpus=1 --until measure
    echo rc=\$? > study.done; date -u +%FT%TZ >> study.done
  " > study.log 2>&1 < /dev/null &
fi
end=$((SECONDS + seconds))
# Nothing measured and something failed: no use in waiting.
hopeless() { [ -d results/h200-smollm2/failures ] && ! compgen -G 'results/h200-smollm2/sessions/*/*/cell.json' > /dev/null; }
while [ ! -e study.done ] && ! hopeless && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
for log in results/h200-smollm2/sessions/*/server.log; do
  [ -e "$log" ] && tail -n 150 "$log" > "${log%.log}.tail"
done
mkdir -p "$out"
tar -c --exclude=server.log --exclude=workloads results/h200-smollm2 study.* nvidia-smi.txt pip-list.txt \
  | xz -T0 -3 | split -b 15M -d - "$out/results.tar.xz.part"
find results/h200-smollm2 -name cell.json | wc -l
ls results/h200-smollm2/failures 2> /dev/null || true
tail -n 25 study.log
[ ! -e study.done ] || cat study.done
