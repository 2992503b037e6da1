"""The verb that opens a model to programs and people: serve."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fscil.command import show
from fscil.command.options import Count
from fscil.command.photos import Saved
from fscil.errors import FscilError


def serve(
    model: Saved,
    /,
    *,
    host: Annotated[str, Parameter(help="address to listen at; other machines reach 0.0.0.0")] = "127.0.0.1",
    port: Annotated[Count, Parameter(help="port to listen at")] = 8000,
    token_file: Annotated[
        Path | None, Parameter(help="file with the word that requests must bring; needed if others reach the address")
    ] = None,
    open_prediction: Annotated[bool, Parameter(help="questions need no token, changes do", negative=())] = False,
    tls_cert: Annotated[Path | None, Parameter(help="certificate file, for https")] = None,
    tls_key: Annotated[Path | None, Parameter(help="key file of the certificate")] = None,
) -> None:
    """Serve a model over HTTP: a page for people, JSON for programs."""
    from fscil.serve.server import run
    from fscil.serve.settings import Settings, read_token

    if (tls_cert is None) != (tls_key is None):
        raise FscilError("--tls-cert and --tls-key belong together; give both")
    token = None if token_file is None else read_token(token_file)
    settings = Settings(model, host, port, token, open_prediction)
    shown = f"[{host}]" if ":" in host else host
    show.say(f"{model} at {'http' if tls_cert is None else 'https'}://{shown}:{port}; Ctrl-C stops it")
    run(settings, tls_cert, tls_key)


VERBS = (serve,)
