"""What a plugin's own command uses: options, output, and an event loop that can be interrupted.

@click.command()
@override_option
@json_option
@click.pass_context
def judge(ctx, overrides, as_json): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion._lazy import names_on_first_use

if TYPE_CHECKING:
    from orchestrion._cli import Main as Main
    from orchestrion._cli import Options as Options
    from orchestrion._cli import main as main
    from orchestrion._cli.common import answer as answer
    from orchestrion._cli.common import block_option as block_option
    from orchestrion._cli.common import emit as emit
    from orchestrion._cli.common import find_config as find_config
    from orchestrion._cli.common import json_option as json_option
    from orchestrion._cli.common import note as note
    from orchestrion._cli.common import options as options
    from orchestrion._cli.common import override_option as override_option
    from orchestrion._cli.common import table as table
    from orchestrion._cli.looping import in_loop as in_loop
    from orchestrion._cli.looping import stopped_by_signals as stopped_by_signals
    from orchestrion._cli.web import UVICORN as UVICORN
    from orchestrion._cli.web import Impatient as Impatient
    from orchestrion._cli.web import listener as listener
    from orchestrion._cli.web import running as running

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
