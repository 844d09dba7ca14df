"""The end of a run as a person reads it."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from ragen.errors import StorageError
from ragen.records import EndReason, Trajectory, Verdict
from ragen.training.learning_curve import draw_learning_curve
from ragen.training.report import before_after_table, example_panels, next_commands, readable
from tests.support.finished import Episode, Played


@dataclass(frozen=True, kw_only=True)
class Mean:
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tag:
    num_episodes: int = 256
    success: Mean = Mean(mean=0.11, low=0.08, high=0.155)
    return_: Mean = Mean(mean=-0.05, low=-0.06, high=-0.04)
    format_validity: Mean = Mean(mean=0.132, low=0.1, high=0.17)
    sampled_tokens: Mean = Mean(mean=33.4)
    reward_parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    step: int = 0
    environments: dict[str, Tag] = field(default_factory=lambda: {"bandit": Tag()})
    trajectories: tuple[Trajectory, ...] = ()


def printed(renderable: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(renderable)
    return out.getvalue()


def row(text: str, label: str) -> str:
    """The table line that begins with `label`, without its borders, spaces collapsed."""
    return next(" ".join(line.strip("│ ").split()) for line in text.splitlines() if line.strip("│ ").startswith(label))


# --- before / after


AFTER = Evaluation(
    step=16,
    environments={
        "bandit": Tag(success=Mean(mean=0.93, low=0.89, high=0.955), return_=Mean(mean=0.24), format_validity=Mean(mean=1.0))
    },
)


def test_the_table_sets_before_beside_after_with_intervals() -> None:
    text = printed(before_after_table(Evaluation(), AFTER))
    assert "Held-out seeds, 256 episodes of bandit" in text
    assert row(text, "success") == "success │ 11.0% [8.0%, 15.5%] │ 93.0% [89.0%, 95.5%]"
    assert row(text, "return") == "return │ -0.050 [-0.060, -0.040] │ +0.240"
    assert row(text, "format validity") == "format validity │ 13.2% [10.0%, 17.0%] │ 100.0%"
    assert row(text, "sampled tokens") == "sampled tokens │ 33.4 │ 33.4"
    assert "before (step 0)" in text
    assert "after (step 16)" in text
    assert "[low, high]: 95 % interval" in text


def test_without_an_evaluation_before_training_only_after_is_shown() -> None:
    text = printed(before_after_table(None, AFTER))
    assert "before" not in text
    assert row(text, "success") == "success │ 93.0% [89.0%, 95.5%]"


def test_several_tags_have_rows_of_their_own() -> None:
    both = Evaluation(environments={"bandit": Tag(), "lake": Tag(success=Mean(mean=0.5))})
    text = printed(before_after_table(None, both))
    assert row(text, "bandit: success").startswith("bandit: success │ 11.0%")
    assert row(text, "lake: success") == "lake: success │ 50.0%"


def test_the_table_fits_eighty_columns() -> None:
    assert max(map(len, printed(before_after_table(Evaluation(), AFTER), width=80).splitlines())) <= 80


# --- examples


def evaluation_of(*episodes: Episode, step: int = 0) -> Evaluation:
    return Evaluation(step=step, trajectories=tuple(episode.made() for episode in episodes))


WON = Played(observation="Pick Clerk or Pirate.", thought="Pirates dare.", actions=("Pirate",), reward=1.0, num_tokens=12)
LOST = Played(text="<think>I got both arms", verdict=Verdict.NO_ANSWER, actions=(), format_penalty=-0.1, num_tokens=40)


def test_an_episode_shows_what_was_read_thought_answered_and_paid() -> None:
    text = printed(example_panels(None, evaluation_of(Episode(seed=77, success=True, turns=(WON,)), step=16)))
    assert "after (step 16) · bandit · seed 77" in text
    assert "turn 1 reads  Pick Clerk or Pirate." in text
    assert "thinks  Pirates dare." in text
    assert "answers  Pirate" in text
    assert "gets  reward +1.00 · valid" in text
    assert "solved · return +1.00 · 12 tokens" in text


def test_a_reply_that_could_not_be_read_is_shown_as_written_with_its_penalty() -> None:
    text = printed(example_panels(None, evaluation_of(Episode(turns=(LOST,)))))
    assert "writes  <think>I got both arms" in text
    assert "reward +0.00 · format penalty -0.10 · no_answer" in text
    assert "failed · return -0.10 · 40 tokens" in text


def test_the_same_seeds_are_shown_before_and_after() -> None:
    before = evaluation_of(Episode(seed=1), Episode(seed=2), Episode(seed=3))
    after = evaluation_of(Episode(seed=3), Episode(seed=2), Episode(seed=1), step=16)
    text = printed(example_panels(before, after))
    titles = [line for line in text.splitlines() if "seed" in line]
    assert [title.split("seed ")[1].split()[0] for title in titles] == ["1", "2", "2", "1"]
    assert ["before" in title for title in titles] == [True, True, False, False]


def test_an_episode_without_a_reply_says_why() -> None:
    lost = Episode(turns=(), end_reason=EndReason.ENGINE_ERROR, error="the engine is gone")
    assert "no reply  the engine is gone" in printed(example_panels(None, evaluation_of(lost)))


def test_brackets_and_control_characters_of_a_reply_do_no_harm() -> None:
    """A model may write anything: markup of the terminal library, escape sequences, text that turns its direction."""
    turn = Played(thought="[bold]hm[/bold] [/nothing]", actions=("\x1b[31mred",), observation="a\u202eb")
    text = printed(example_panels(None, evaluation_of(Episode(turns=(turn,)))))
    assert "[bold]hm[/bold] [/nothing]" in text
    assert "\ufffd[31mred" in text
    assert "a\ufffdb" in text
    assert "\x1b" not in text


def test_long_texts_are_cut_where_it_hurts_least() -> None:
    """Of an observation the end counts, of a thought the beginning."""
    turn = Played(observation="FIRST " + "x" * 900 + " LAST", thought="BEGIN " + "y" * 900 + " STOP")
    text = printed(example_panels(None, evaluation_of(Episode(turns=(turn,)))))
    assert "LAST" in text
    assert "FIRST" not in text
    assert "BEGIN" in text
    assert "STOP" not in text


def test_a_long_thought_wraps_under_its_own_beginning() -> None:
    text = printed(example_panels(None, evaluation_of(Episode(turns=(Played(thought="word " * 40),)))), width=60)
    first, second = [line for line in text.splitlines() if "word" in line][:2]
    assert first.index("word") == second.index("word")


def test_lines_and_ordinary_text_stay_as_they_are() -> None:
    assert readable("P _ G\n🧍 🏁\tünï") == "P _ G\n🧍 🏁\tünï"


# --- next commands


def test_the_next_commands_name_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/ragen")
    text = printed(next_commands(Path("runs/bandit"), tag="bandit"), width=140)
    assert "ragen eval runs/bandit --env bandit" in text
    assert "ragen train runs/bandit --resume trainer.steps=50" in text


def test_outside_an_activated_environment_the_commands_name_the_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ragen").touch()
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    monkeypatch.chdir(tmp_path)
    text = printed(next_commands(Path("runs/bandit"), tag="bandit"), width=140)
    assert "bin/ragen eval runs/bandit --env bandit" in text


# --- learning curve


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


ROWS: list[dict[str, float]] = [
    {"step": 0, "eval/bandit/success": 0.1, "eval/bandit/return": -0.1, "eval/bandit/format_validity": 0.1},
    *({"step": step, "rollout/success": step / 16, "rollout/return": 0.1, "update/grad_norm": 0.2} for step in range(1, 17)),
]


def test_the_learning_curve_is_a_picture(tmp_path: Path) -> None:
    draw_learning_curve(ROWS, tmp_path / "curve.png", title="bandit")
    assert png_size(tmp_path / "curve.png") == (1650, 900)
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


@pytest.mark.parametrize(
    "rows", [[], ROWS[:2], [{"step": s, "update/entropy": 0.0} for s in range(60)]], ids=["none", "one", "flat"]
)
def test_any_number_of_steps_can_be_drawn(rows: list[dict[str, float]], tmp_path: Path) -> None:
    draw_learning_curve(rows, tmp_path / "curve.png", title="bandit")
    assert png_size(tmp_path / "curve.png") == (1650, 900)


def test_the_picture_changes_with_the_numbers(tmp_path: Path) -> None:
    draw_learning_curve(ROWS, tmp_path / "a.png", title="bandit")
    draw_learning_curve([row | {"rollout/success": 0.5} for row in ROWS], tmp_path / "b.png", title="bandit")
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()


def test_a_picture_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=r"curve\.png: cannot write"):
        draw_learning_curve(ROWS, tmp_path / "runs" / "curve.png", title="bandit")
