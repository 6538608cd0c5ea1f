"""Write what is generated from the code: config schema, config reference, results format."""

import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))

from draftbench.config import json_schema, reference_table  # noqa: E402 - after the path is set
from draftbench.tables import data_dictionary  # noqa: E402

GENERATED = {
    "docs/config.schema.json": json_schema,
    "docs/config-reference.md": reference_table,
    "docs/results-format.md": data_dictionary,
}


def main() -> None:
    """Rewrite every generated file."""
    for path, text in GENERATED.items():
        (PROJECT / path).write_text(text(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
