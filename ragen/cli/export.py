"""`ragen export`."""

from __future__ import annotations

from pathlib import Path

from ragen.cli.output import print_text


def export(source: str, out: str, /, *, to: str, keep: str | None = None) -> None:
    """Write recorded episodes in a form that other programs read.

    Parameters
    ----------
    source
        a run folder (the rollouts of its training), its eval/ folder, the JSON file of an evaluation, or a recorder file
    out
        the file, or for datasets and sft the folder, to write; it must not exist
    to
        parquet (whole trajectories), chat (JSON lines of messages with rewards), datasets (a folder for Hugging Face datasets,
        with a card) or sft (ids with masks, and chats, for fine-tuning)
    keep
        all, scored (all but infrastructure failures) or successes; default: successes for sft, else all
    """
    from ragen.errors import ConfigError, near_match
    from ragen.evaluation.export import Export, find_source, refuse_existing, write_parquet
    from ragen.evaluation.export_chat import write_chat
    from ragen.evaluation.export_datasets import write_dataset
    from ragen.evaluation.export_sft import write_sft

    forms: dict[str, Export] = {"parquet": write_parquet, "chat": write_chat, "datasets": write_dataset, "sft": write_sft}
    if to not in forms:
        raise ConfigError(f"--to={to}: must be one of {', '.join(forms)}{near_match(to, forms)}")
    found = find_source(Path(source), keep=keep or ("successes" if to == "sft" else "all"))
    refuse_existing(Path(out))
    written = forms[to](found, Path(out))
    rows = "" if written.num_rows == written.num_episodes else f" in {written.num_rows} rows"
    print_text(f"{written.num_episodes} episodes{rows} ({found.keep} of {len(found.files)} files) -> {written.path}")
