"""ppocli: recompute the PPO clipped-surrogate loss and its diagnostics from logged rollouts.

The public names are loaded at their first use, so that `import ppocli` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ppocli.core.audit_report import AuditReport as AuditReport
    from ppocli.core.check_report import CheckReport as CheckReport
    from ppocli.core.drift_report import DriftReport as DriftReport
    from ppocli.core.report import EvalReport as EvalReport
    from ppocli.core.spec import LossSpec as LossSpec
    from ppocli.engine.audit import audit as audit
    from ppocli.engine.by_file import partials as partials
    from ppocli.engine.convert import convert_files as convert_files
    from ppocli.engine.drift import drift as drift
    from ppocli.engine.evaluate import evaluate as evaluate
    from ppocli.engine.evaluate import ppo_clip_loss as ppo_clip_loss
    from ppocli.engine.gate import check as check
    from ppocli.engine.inspect import inspect_files as inspect_files
    from ppocli.engine.merge_reports import merge as merge
    from ppocli.engine.parity import parity_files as parity_files
    from ppocli.engine.synth import synth as synth
    from ppocli.errors import ExitCode as ExitCode
    from ppocli.errors import PpoCliError as PpoCliError
    from ppocli.io.report_table import to_arrow as to_arrow
    from ppocli.io.writer import RolloutWriter as RolloutWriter
    from ppocli.render.html import to_html as to_html

_HOMES = {
    "AuditReport": "ppocli.core.audit_report",
    "CheckReport": "ppocli.core.check_report",
    "check": "ppocli.engine.gate",
    "DriftReport": "ppocli.core.drift_report",
    "EvalReport": "ppocli.core.report",
    "ExitCode": "ppocli.errors",
    "LossSpec": "ppocli.core.spec",
    "PpoCliError": "ppocli.errors",
    "drift": "ppocli.engine.drift",
    "audit": "ppocli.engine.audit",
    "RolloutWriter": "ppocli.io.writer",
    "convert_files": "ppocli.engine.convert",
    "evaluate": "ppocli.engine.evaluate",
    "inspect_files": "ppocli.engine.inspect",
    "merge": "ppocli.engine.merge_reports",
    "parity_files": "ppocli.engine.parity",
    "partials": "ppocli.engine.by_file",
    "ppo_clip_loss": "ppocli.engine.evaluate",
    "synth": "ppocli.engine.synth",
    "to_arrow": "ppocli.io.report_table",
    "to_html": "ppocli.render.html",
}
__all__ = [
    "AuditReport",
    "CheckReport",
    "DriftReport",
    "EvalReport",
    "ExitCode",
    "LossSpec",
    "PpoCliError",
    "RolloutWriter",
    "audit",
    "check",
    "convert_files",
    "drift",
    "evaluate",
    "inspect_files",
    "merge",
    "parity_files",
    "partials",
    "ppo_clip_loss",
    "synth",
    "to_arrow",
    "to_html",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ppocli' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
