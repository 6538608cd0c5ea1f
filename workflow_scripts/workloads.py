"""Builds one workload: requests.jsonl, rendered.jsonl, references.jsonl and manifest.json in the output folder."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.errors import exit_on_error
from draftbench.workloads.build import build_workload
from draftbench.workloads.definitions import WorkloadDefinition


def main() -> None:
    """Read the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", type=Path, required=True, help="file with a WorkloadDefinition as JSON")
    parser.add_argument("--target-dir", type=Path, required=True, help="checkpoint folder with tokenizer.json")
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--cache-dir", type=Path, required=True, help="folder for wheels and simulator results")
    arguments = parser.parse_args()
    definition = WorkloadDefinition.model_validate_json(arguments.definition.read_bytes())
    manifest = build_workload(definition, arguments.target_dir, arguments.out_dir, arguments.cache_dir)
    lengths = manifest.selected
    print(
        f"workload {manifest.set}: {lengths.conversations} conversations, {lengths.requests} requests, prompts of "
        f"{lengths.prompt_tokens.minimum} to {lengths.prompt_tokens.maximum} tokens"
    )


if __name__ == "__main__":
    exit_on_error(main)
