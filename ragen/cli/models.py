"""`ragen models`."""

from __future__ import annotations

from dataclasses import asdict

from cyclopts import App

from ragen.cli.output import Json, console, print_json, print_table

models_app = App(
    name="models", help_format="plaintext", help="Models by name: where their weights come from, what is in the cache."
)


@models_app.command(name="list")
def models_list(*, as_json: Json = False) -> None:
    """List the models that have a short name; any local folder or hub id works as well.

    Parameters
    ----------
    as_json
        print JSON
    """
    from ragen.models.aliases import list_models

    entries = list_models()
    if as_json:
        print_json([{**asdict(entry), "path": entry.path and str(entry.path)} for entry in entries])
        return
    rows = [
        (
            entry.alias,
            f"{entry.size / 1e6:,.0f} MB",
            "yes" if entry.cached else "no",
            f"{entry.description}\nfrom: {entry.source}",
        )
        for entry in entries
    ]
    print_table(("model", "on disk", "here", "what it is"), rows)


@models_app.command(name="pull")
def models_pull(name: str, /, *, as_json: Json = False) -> None:
    """Fetch a model into the cache, or verify the one that is there; print its folder.

    Parameters
    ----------
    name
        a short name (ragen models list), a hub id, or a folder to check
    as_json
        print JSON, progress on stderr
    """
    from ragen.models.aliases import pull
    from ragen.training.display import Display

    display = Display(console(stderr=True))
    path = pull(name, display.download)
    display.end_download()
    if as_json:
        print_json({"model": name, "path": str(path)})
    else:
        print(path)
