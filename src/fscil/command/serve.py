"""The verb that opens a model to programs and people: serve."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fscil.command import show
from fscil.command.options import Count
from fscil.command.photos import Saved
from fscil.errors import FscilError


def serve(
    model: Saved | None = None,
    /,
    *,
    demo: Annotated[
        bool,
        Parameter(help="instead of MODEL: draw pictures, learn and serve them; all in ./studio", negative=()),
    ] = False,
    host: Annotated[str, Parameter(help="address to listen at; other machines reach 0.0.0.0")] = "127.0.0.1",
    port: Annotated[Count, Parameter(help="port to listen at")] = 8000,
    token_file: Annotated[
        Path | None, Parameter(help="file with the word that requests must bring; needed if others reach the address")
    ] = None,
    open_prediction: Annotated[bool, Parameter(help="questions need no token, changes do", negative=())] = False,
    thumbnails: Annotated[
        bool | None, Parameter(help="keep small pictures of taught photos in MODEL; --no-thumbnails removes them")
    ] = None,
    name: Annotated[
        list[str] | None,
        Parameter(help="host name by which a proxy on this machine calls the service", negative=()),
    ] = None,
    tls_cert: Annotated[Path | None, Parameter(help="certificate file, for https")] = None,
    tls_key: Annotated[Path | None, Parameter(help="key file of the certificate")] = None,
) -> None:
    """Serve a model over HTTP: a page for people, JSON for programs."""
    from fscil.serve.server import run
    from fscil.serve.settings import Settings, read_token

    if (tls_cert is None) != (tls_key is None):
        raise FscilError("--tls-cert and --tls-key belong together; give both")
    token = None if token_file is None else read_token(token_file)
    model = _demo(model) if demo else model
    if model is None:
        raise FscilError("there is no model to serve: name a model file, or give --demo to try one made of pictures")
    if thumbnails is not None:
        _switch_thumbnails(model, thumbnails)
    settings = Settings(model, host, port, token, open_prediction, tuple(name or ()))
    run(settings, tls_cert, tls_key, show.say)


def _switch_thumbnails(file: Path, keep: bool) -> None:
    from fscil.teach.storage import modelfile

    with modelfile.editing(file) as model:
        model.album.switch(keep)


def _demo(model: Path | None) -> Path:
    """The model to try, made now or before."""
    if model is not None:
        raise FscilError(f"--demo makes its own model; omit {model}, or omit --demo")
    from fscil.serve.demo import FOLDER, make_demo

    if not FOLDER.exists():
        show.say("drawing pictures of twelve things and learning them, once ...")
    made = make_demo(FOLDER)
    show.say(f"drop pictures of {FOLDER / 'teach'} and {FOLDER / 'test'} on the page; {made} keeps what it is taught")
    return made


VERBS = (serve,)
