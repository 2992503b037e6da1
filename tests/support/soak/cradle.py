"""What every process of a soak run needs, imported once: they are forked from here, so a restart costs no import."""

import threading

import uvicorn

import pocket
import tiny
from fscil.command import cli
from fscil.serve import app, server
from fscil.teach.base import learning
from fscil.teach.lessons import teaching

__all__ = ["app", "cli", "learning", "pocket", "server", "teaching", "threading", "tiny", "uvicorn"]
