"""Krontab lines: parsed, printed, checked."""
