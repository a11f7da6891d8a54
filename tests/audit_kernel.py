"""Calls the kernel of the audit on arrays, and takes its results apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from audit_oracle import INF, Bounds

from ppocli.core.partials import COLUMNS
from ppocli.core.precision import PRECISIONS
from ppocli.engine.audit_tables import Variant, format_table, variant_table
from ppocli.kernels import audit_layout, layout
from ppocli.kernels.audit import Audited, audit_blocks
from ppocli.kernels.audit_layout import AuditWorkspace

NONE = np.zeros(0, dtype=np.uint8)
ROLES = ("log_probs", "old_log_probs", "advantages")
CHECKS = np.array([PRECISIONS[name].rule for name in ("bfloat16", "bfloat16", "float16", "float16")])


def parameters(b: Bounds, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    return np.array([b.low, b.high, b.dual, b.delta, b.clamp, shift, scale, INF])


def evaluate(
    columns: tuple[Any, Any, Any], variants: tuple[Variant, ...], b: Bounds, *, mask: np.ndarray = NONE,
    workers: int = 1, wanted: np.ndarray | None = None, with_advantages: bool = False, dump: bool = False,
    scales: dict[str, tuple[float, float, float]] | None = None, p: np.ndarray | None = None,
    each: list[np.ndarray] | None = None, workspace: AuditWorkspace | None = None,
) -> Audited:  # fmt: skip
    n = len(columns[0])
    names = tuple(dict.fromkeys(one.storage for one in variants))
    blocks = -(-n // layout.BLOCK)
    out = Audited.room(n, len(variants), 4, np.full((1, blocks * layout.BLOCK), np.nan), dump=dump)
    workspace = workspace or AuditWorkspace(workers, len(variants))
    workspace.scratch[:] = np.nan  # nothing may depend on what was there
    p = parameters(b) if p is None else p
    by_role = dict(zip(ROLES, columns, strict=True))
    audit_blocks(
        workspace, [by_role.get(role, NONE) for role in COLUMNS], mask, n,
        np.arange(-(-n // layout.BLOCK)) if wanted is None else wanted, p,
        format_table(names, scales or {}), each or [np.zeros(0, dtype=np.float32)] * 3, with_advantages,
        variant_table(variants, names, p), np.ones(4, dtype=np.int64), CHECKS, out,
    )  # fmt: skip
    return out


def result(out: Audited, v: int, name: str) -> float:
    return float(out.results[:, v * audit_layout.N_RESULTS + audit_layout.RESULTS[name]].sum())


def extreme(out: Audited, v: int, name: str) -> float:
    column = out.extremes[:, v * audit_layout.N_EXTREMES + audit_layout.EXTREME[name]]
    return float(column.min() if name == "ratio_min" else column.max())


def rows_of(out: Audited, v: int, n: int) -> dict[str, np.ndarray]:
    size = len(audit_layout.DUMPED)
    return dict(zip(audit_layout.DUMPED, out.dump[v * size : (v + 1) * size, :n], strict=True))
