"""`horae lint`: prints every error and warning in krontab files, one a line."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from horae.cli import files
from horae.services.preview.preview import LintFinding, lint_files

if TYPE_CHECKING:
    from horae.cli.screen.screen import Screen


_INSTEAD = "horae plan {} checks it, and shows what it would change."


def run(arguments: Namespace, screen: Screen) -> int:
    texts = {name: files.read_krontab(name, _INSTEAD) for name in dict.fromkeys(arguments.files)}
    findings = lint_files(texts, files.now())
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    screen.data(
        {
            "files": len(texts),
            "errors": errors,
            "warnings": warnings,
            "findings": [finding.to_dict() for finding in findings],
        }
    )
    for finding in findings:
        show(screen, finding)
    verdict = f"{_counted(errors, 'fault')}, {_counted(warnings, 'warning')}" if findings else "fine"
    screen.line(f"{_counted(len(texts), 'file')}: {screen.style(verdict, 'yellow' if findings else 'green')}")
    return 2 if errors or (arguments.strict and warnings) else 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show(screen: Screen, finding: LintFinding) -> None:
    place = f"{finding.file}:{finding.line}:{finding.column}"
    severity = screen.style(finding.severity, "red" if finding.severity == "error" else "yellow")
    screen.line(f"{place}: {severity}: {finding.message} [{finding.code}]")
    if finding.hint:
        screen.line(f"    {screen.style(finding.hint, 'dim')}")
