"""The numbers of a service, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Meters:
    """The numbers of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("fscil_requests", "Answered requests", ["route", "status"], registry=self.registry)
        self.seconds = Histogram("fscil_request_seconds", "Seconds to an answer", ["route"], registry=self.registry)
        self.photos = Gauge("fscil_photos_waiting", "Photos that wait for an answer", registry=self.registry)
        self.changes = Gauge("fscil_changes_waiting", "Changes that wait to be written", registry=self.registry)
        self.classes = Gauge("fscil_classes", "Classes of the model", registry=self.registry)
