"""`ppocli schema`: the JSON Schema of the output of `-f json`."""

from __future__ import annotations

from ppocli.cli.failures import emit

HELP = """\
Print the JSON Schema (draft 2020-12) of what -f json prints, of 'ppocli eval',
'ppocli check' and 'ppocli inspect'.

  ppocli schema > report.schema.json"""


def run() -> int:
    """Print the schema, return the exit code."""
    import json

    from ppocli.core.schema import document_schema

    emit(json.dumps(document_schema(), indent=2) + "\n")
    return 0
