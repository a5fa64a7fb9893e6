"""Previews of schedules, which need no store."""
