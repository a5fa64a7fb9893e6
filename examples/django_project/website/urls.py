"""Two addresses: one schedules, one shows."""

from __future__ import annotations

from django.urls import path
from reminders import views

urlpatterns = [
    path("reminders/<str:user>/<int:seconds>", views.schedule),
    path("reminders/<str:user>", views.show),
]
