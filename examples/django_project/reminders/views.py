"""Views call `scheduler.sync`, whether this process runs jobs or only asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from horae import Once
from reminders.scheduler import scheduler


@csrf_exempt
@require_POST
def schedule(request: HttpRequest, user: str, seconds: int) -> JsonResponse:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    scheduler.sync.schedule(f"remind-{user}", Once(at), task="remind", payload={"user": user})
    return JsonResponse({"job": f"remind-{user}", "at": at.isoformat()}, status=202)


@require_GET
def show(request: HttpRequest, user: str) -> JsonResponse:
    runs = scheduler.sync.runs(f"remind-{user}")
    return JsonResponse([{"due": run.chosen_time.isoformat(), "state": run.state} for run in runs], safe=False)
