"""For those who watch the service: whether it lives, whether it is ready, and how much it does."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from fscil.serve.problems import Problem, documented
from fscil.serve.service import Served
from fscil.serve.shapes import Status
from fscil.serve.store import FAILED

routes = APIRouter()


@routes.get("/health", summary="Whether the service lives", responses=documented(503))
async def health(service: Served) -> Status:
    if not service.works:
        raise Problem(503, "a part of the service has stopped; start it again")
    return Status(status="ok")


@routes.get("/ready", summary="Whether it can answer", responses=documented(503))
async def ready(service: Served) -> Status:
    if service.stopping or not service.works:
        raise Problem(503, "the service is stopping", headers={"Retry-After": "1"})
    if service.store.fault is not None:
        raise Problem(503, "the model file cannot be read; questions are answered from its last state")
    if service.store.failed:
        raise Problem(503, FAILED)
    return Status(status="ready")


@routes.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(service: Served) -> Response:
    meters = service.meters
    meters.photos.set(service.eyes.waiting)
    meters.changes.set(service.store.waiting)
    meters.classes.set(len(service.model.names))
    return Response(generate_latest(meters.registry), media_type=CONTENT_TYPE_LATEST)
