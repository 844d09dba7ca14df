from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ragen.engines.scripted import ScriptedEngine, ScriptedReply
from ragen.errors import ConfigError
from ragen.records import EndReason, FinishReason, Observation, Sampling, Verdict
from ragen.rollout.agent import Limits, _end_reason, run_trajectory
from tests.support.corridor import num_open
from tests.support.episodes import manager
from tests.support.invariants import assert_token_invariants
from tests.support.rollouts import SAMPLING, contexts, corridor, encode, play, scripted, walk
from tests.support.tokenizers import END, make_tokenizer


def test_an_episode_is_played_until_the_environment_is_solved() -> None:
    engine = scripted([walk("Right", "Right"), walk("Right", "Right")])
    trajectory = play(engine, corridor())
    assert (trajectory.end_reason, trajectory.success, trajectory.error) == (EndReason.SOLVED, True, "")
    assert [turn.executed for turn in trajectory.turns] == [("Right", "Right")] * 2
    assert trajectory.rewards == pytest.approx(-0.1 * 3 + 1)
    assert trajectory.final_observation == "_ _ _ _ P"
    assert_token_invariants(trajectory, engine.requests)


def test_a_goal_reached_on_the_limit_step_is_success() -> None:
    """Bug-log row 40: both end flags set, action budget and turns used up by the same step; ended once."""
    config = corridor(both_flags=True, max_actions=4, max_turns=1)
    engine = scripted([walk("Right", "Right", "Right", "Right")])
    trajectory = play(engine, config)
    assert (trajectory.end_reason, trajectory.success) == (EndReason.SOLVED, True)
    assert len(engine.requests) == 1


def test_an_environment_that_gives_up_is_truncated_and_not_failed() -> None:
    """The corridor allows six steps and does not say so: what the agent cannot know is a truncation."""
    trajectory = play(scripted([walk("Left", "Left", "Left")] * 2), corridor())
    assert (trajectory.end_reason, trajectory.success) == (EndReason.TRUNCATED, False)
    assert trajectory.end_reason.is_truncation
    assert trajectory.num_actions == 6


def test_a_loss_is_failed_even_if_it_comes_with_a_truncation() -> None:
    lost = Observation(text="", terminated=True, truncated=True)
    context = contexts()(manager(corridor=corridor()).open(0)[0][0])
    assert _end_reason(lost, context, Limits(max_turns=5, max_invalid_turns=3)) is EndReason.FAILED


def test_an_announced_budget_is_no_truncation_and_an_unknown_limit_is_no_failure() -> None:
    assert [reason for reason in EndReason if reason.is_truncation] == [EndReason.TRUNCATED, EndReason.CONTEXT_LIMIT]
    assert not any(reason.is_truncation and reason.is_infrastructure for reason in EndReason)


def test_actions_are_limited() -> None:
    trajectory = play(scripted([walk("Left"), walk("Left", "Right")]), corridor(max_actions=2))
    assert (trajectory.end_reason, trajectory.num_actions) == (EndReason.ACTION_LIMIT, 2)
    assert [turn.observation.count("Actions left: 2") for turn in trajectory.turns] == [1, 0]
    assert "Actions left: 1" in trajectory.turns[1].observation  # announced, so that running out of them is a failure


def test_turns_are_limited() -> None:
    engine = scripted([walk("Left")] * 2)
    trajectory = play(engine, corridor(max_turns=2))
    assert (trajectory.end_reason, len(trajectory.turns), len(engine.requests)) == (EndReason.TURN_LIMIT, 2, 2)
    assert "Turns left: 2" in trajectory.turns[0].observation
    assert "Turns left: 1" in trajectory.turns[1].observation


def test_a_reply_that_never_stops_costs_its_own_turn_alone() -> None:
    """Bug-log row 55: 200 newlines in a turn that may hold 60 tokens; it is cut there, and two more turns are played."""
    engine = scripted(["\n" * 200, walk("Right", "Right"), walk("Right", "Right")])
    trajectory = play(engine, corridor(max_turns=3), sampling=replace(SAMPLING, max_new_tokens=60))
    first, *others = trajectory.turns
    assert (first.finish_reason, first.executed) == (FinishReason.LENGTH, ())
    assert [turn.executed for turn in others] == [("Right", "Right")] * 2
    assert trajectory.end_reason is EndReason.SOLVED


def test_what_the_environment_says_takes_nothing_from_what_may_be_generated() -> None:
    """Bug-log row 56: each observation is longer than a reply may be; every turn has the whole limit of a reply all the same."""
    engine = scripted([walk("Left")] * 4)
    limit = len(encode(walk("Left"))) + 1
    trajectory = play(engine, corridor(max_turns=4), sampling=replace(SAMPLING, max_new_tokens=limit))
    assert all(len(encode(turn.observation)) > limit for turn in trajectory.turns)
    assert [request.sampling.max_new_tokens for request in engine.requests] == [limit] * 4
    assert (trajectory.end_reason, [turn.executed for turn in trajectory.turns]) == (EndReason.TURN_LIMIT, [("Left",)] * 4)


def test_invalid_replies_in_a_row_end_the_episode() -> None:
    """Bug-log row 47: ten invalid answers with a cap of 3; three turns, each with its penalty, the environment not stepped."""
    engine = scripted(["I would rather not"] * 10)
    trajectory = play(engine, corridor(max_turns=10), max_invalid_turns=3)
    assert trajectory.end_reason is EndReason.PARSE_FAILURE
    assert (len(trajectory.turns), len(engine.requests), trajectory.num_actions) == (3, 3, 0)
    assert (trajectory.rewards, trajectory.return_) == (0.0, pytest.approx(-0.3))


def test_a_valid_reply_begins_the_count_of_invalid_ones_anew() -> None:
    engine = scripted(["no", "no", walk("Left"), "no", "no", "no"])
    trajectory = play(engine, corridor(max_turns=10), max_invalid_turns=3)
    assert (trajectory.end_reason, len(trajectory.turns)) == (EndReason.PARSE_FAILURE, 6)


def test_a_reply_of_unknown_actions_alone_counts_as_invalid() -> None:
    trajectory = play(scripted([walk("Jump")] * 2), corridor(), max_invalid_turns=2)
    assert trajectory.end_reason is EndReason.PARSE_FAILURE
    assert [turn.reply.verdict for turn in trajectory.turns] == [Verdict.UNKNOWN_ACTION] * 2


def test_a_model_is_told_that_nothing_was_done_and_sees_the_state_again() -> None:
    trajectory = play(scripted(["no", walk("Left")]), corridor(max_turns=2))
    assert "nothing was done" in trajectory.turns[1].observation
    assert "P _ _ _ G" in trajectory.turns[1].observation


@pytest.mark.parametrize("text", ["", "   "])
@pytest.mark.parametrize("ended", [True, False])
def test_a_reply_of_nothing_is_an_invalid_action(text: str, ended: bool) -> None:
    """Bug-log row 62: the engine returns the end-of-turn id alone, nothing at all, or only spaces."""
    end = make_tokenizer().convert_tokens_to_ids(END)
    ids = (*encode(text), *([end] if ended else []))
    engine = ScriptedEngine([ids, (*encode(walk("Right", "Right", "Right", "Right")), end)])
    trajectory = play(engine, corridor())
    first, second = trajectory.turns
    assert (first.reply.verdict, first.executed, first.format_penalty) == (Verdict.EMPTY, (), -0.1)
    assert second.executed == ("Right",) * 4
    assert trajectory.end_reason is EndReason.SOLVED
    assert_token_invariants(trajectory, engine.requests)


def test_an_episode_of_nothing_but_empty_replies_has_no_sampled_id() -> None:
    """Bug-log rows 14 and 62: nothing to train on is visible as such, in mask and count."""
    trajectory = play(ScriptedEngine([(), ()]), corridor(max_turns=2))
    assert (trajectory.num_sampled, trajectory.segments[0].mask.any(), len(trajectory.turns)) == (0, False, 2)
    assert trajectory.segments[0].prompt_length == len(trajectory.segments[0].ids)


@pytest.mark.parametrize("reserve", [1, 60])
@pytest.mark.parametrize(("spare", "num_turns"), [(-1, 1), (0, 2), (1, 2)])
def test_the_episode_ends_where_no_whole_reply_fits_any_more(reserve: int, spare: int, num_turns: int) -> None:
    """Bug-log rows 53 and 54: the window misses the second reply by a token, fits it exactly, or by one more.

    With a reserve of 1 these are 0, 1 and 2 tokens left: the engine is never asked for none.
    """
    sampling = replace(SAMPLING, max_new_tokens=reserve)
    text = walk("Left")[:reserve]
    unlimited = scripted([text] * 2)
    play(unlimited, corridor(max_turns=2), make_context=contexts(reserve=reserve), sampling=sampling)
    window = len(unlimited.requests[1].prompt_ids) + reserve + spare

    engine = scripted([text] * 2)
    make_context = contexts(reserve=reserve, max_context_tokens=window)
    trajectory = play(engine, corridor(max_turns=2), make_context=make_context, sampling=sampling)
    assert len(trajectory.turns) == len(engine.requests) == num_turns
    assert trajectory.end_reason is (EndReason.CONTEXT_LIMIT if num_turns == 1 else EndReason.TURN_LIMIT)
    assert len(trajectory.segments[0].ids) <= window
    assert not trajectory.end_reason.is_infrastructure


def test_a_first_prompt_without_room_is_a_setting_at_fault() -> None:
    engine = scripted([])
    with pytest.raises(ConfigError, match=r"rollout.context.max_context_tokens=10: the first prompt of environment 'corridor'"):
        play(engine, corridor(), make_context=contexts(max_context_tokens=10))
    assert engine.requests == []
    assert num_open() == 0


def test_a_first_observation_without_end_is_the_environment_s_fault_and_nobody_s_setting() -> None:
    """Bug-log row 45: one such episode must not end a run whose other episodes fit."""
    engine = scripted([])
    trajectory = play(engine, corridor(observation="huge"), make_context=contexts(max_context_tokens=1000))
    assert (trajectory.end_reason, trajectory.turns) == (EndReason.ENVIRONMENT_ERROR, ())
    assert "a first observation of 100000 characters leaves no room for a reply, even cut to" in trajectory.error
    assert engine.requests == []
    assert num_open() == 0


def test_a_reset_that_raises_ends_the_trajectory_with_its_cause() -> None:
    """Bug-log row 44: the environment raises only in reset."""
    trajectory = play(scripted([]), corridor(raise_in_reset=True))
    assert (trajectory.end_reason, trajectory.success) == (EndReason.ENVIRONMENT_ERROR, False)
    assert trajectory.error.startswith("environment 'corridor' (step 0, group 0, member 0, ")
    assert trajectory.error.endswith("Broken: reset")
    assert (len(trajectory.segments[0].ids), trajectory.turns) == (0, ())


def test_a_step_that_raises_keeps_what_was_played_before() -> None:
    """Bug-log row 44: the environment raises in step 2."""
    engine = scripted([walk("Left"), walk("Left")])
    trajectory = play(engine, corridor(raise_at_step=2))
    assert trajectory.end_reason is EndReason.ENVIRONMENT_ERROR
    assert trajectory.error.endswith("Broken: step 2")
    assert [turn.executed for turn in trajectory.turns] == [("Left",), ()]
    assert_token_invariants(trajectory, engine.requests)


def test_an_environment_that_misses_its_deadline_is_a_timeout_and_nobodys_fault() -> None:
    engine = scripted([walk("Left"), walk("Left")])
    trajectory = play(engine, corridor(hang_at_step=2, step_timeout_s=0.2))
    assert trajectory.end_reason is EndReason.TIMEOUT
    assert trajectory.end_reason.is_infrastructure
    assert trajectory.error.endswith("action 2 'Left': no answer within 0.2 s (step_timeout_s)")
    assert [turn.executed for turn in trajectory.turns] == [("Left",), ()]
    assert num_open() == 0


def test_an_engine_failure_ends_the_trajectory_with_its_cause() -> None:
    engine = scripted([walk("Left")], fail_at={1})
    trajectory = play(engine, corridor())
    assert (trajectory.end_reason, trajectory.success) == (EndReason.ENGINE_ERROR, False)
    assert trajectory.error == "scripted engine: call 1 was told to fail"
    assert len(trajectory.turns) == 1
    assert_token_invariants(trajectory, engine.requests)


def test_a_bug_passes_through_and_leaves_nothing_open() -> None:
    """Bug-log row 107."""
    engine = scripted([walk("Left")])  # one reply for two turns: the script's own ValueError stands for a bug
    with pytest.raises(ValueError, match="one more was asked for"):
        play(engine, corridor())
    assert (num_open(), len(engine.released)) == (0, 1)


def test_a_cancelled_trajectory_closes_its_environment() -> None:
    """Bug-log row 107: Ctrl-C arrives as a cancellation while the engine is being waited for."""
    engine = ScriptedEngine(lambda prompt, sampling: [1], delay=lambda call: 1_000_000)
    limits = Limits(max_turns=5, max_invalid_turns=3)

    async def cancel_while_waiting() -> int:
        handle = manager(corridor=corridor()).open(0)[0][0]
        task = asyncio.create_task(run_trajectory(handle, contexts()(handle), engine, SAMPLING, limits))
        await asyncio.sleep(0)
        open_before = num_open()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return open_before

    assert asyncio.run(cancel_while_waiting()) == 1
    assert (num_open(), len(engine.released)) == (0, 1)


def test_the_whole_conversation_is_released_once() -> None:
    engine = scripted([walk("Left"), walk("Left")])
    trajectory = play(engine, corridor(max_turns=2))
    assert len(engine.released) == 1
    assert engine.released[0][: len(trajectory.segments[0].ids)] == tuple(trajectory.segments[0].ids.tolist())


def test_a_conversation_that_begins_anew_is_released_with_what_was_said() -> None:
    """The engine keeps what it knows of a conversation under all its ids; the prompt alone would not name it."""
    engine = scripted([walk("Left")] * 3)
    trajectory = play(engine, corridor(max_turns=3), make_context=contexts(mode="window", window=1))
    assert engine.released == [tuple(segment.ids.tolist()) for segment in trajectory.segments]
    assert len(engine.released) == 3


def test_a_summary_comes_between_two_turns_and_costs_none() -> None:
    engine = scripted([walk("Left"), "I went left.", walk("Right", "Right", "Right", "Right")])
    context = contexts(overflow="summarise", summarise_every=1)
    trajectory = play(engine, corridor(max_turns=2), make_context=context)
    assert (trajectory.end_reason, len(trajectory.turns)) == (EndReason.SOLVED, 2)
    assert [(summary.num_turns, summary.text) for summary in trajectory.summaries] == [(1, "I went left.")]
    assert len(engine.released) == len(trajectory.segments) == 2
    assert_token_invariants(trajectory, engine.requests)


def test_a_summary_that_leaves_no_room_ends_the_episode_at_the_limit_of_its_context() -> None:
    config = corridor(max_turns=3)
    free = scripted([walk("Left")] * 3)
    play(free, config, make_context=contexts(reserve=60), sampling=replace(SAMPLING, max_new_tokens=60))
    room = len(free.requests[0].prompt_ids) + 60 + 500
    engine = scripted([walk("Left")[:60], "x" * 300])
    context = contexts(reserve=60, overflow="summarise", summarise_every=1, summary_tokens=300, max_context_tokens=room)
    trajectory = play(engine, config, make_context=context, sampling=replace(SAMPLING, max_new_tokens=60))
    assert (trajectory.end_reason, len(trajectory.turns), len(trajectory.summaries)) == (EndReason.CONTEXT_LIMIT, 1, 1)
    assert_token_invariants(trajectory, engine.requests)


def test_an_engine_that_fails_at_a_summary_keeps_what_was_said_before() -> None:
    engine = scripted([walk("Left")], fail_at={1})
    trajectory = play(engine, corridor(), make_context=contexts(overflow="summarise", summarise_every=1))
    assert trajectory.end_reason is EndReason.ENGINE_ERROR
    assert (len(trajectory.turns), trajectory.summaries) == (1, ())
    assert_token_invariants(trajectory, engine.requests)


def test_a_reply_stops_where_the_context_says() -> None:
    engine = scripted([walk("Left")])
    play(engine, corridor(max_turns=1), sampling=Sampling(max_new_tokens=100, temperature=0.5, top_p=0.9, top_k=7))
    asked = engine.requests[0].sampling
    assert asked.stop_ids == (make_tokenizer().convert_tokens_to_ids(END),)
    assert asked.stop_texts == ("</answer>",)
    assert (asked.max_new_tokens, asked.temperature, asked.top_p, asked.top_k) == (100, 0.5, 0.9, 7)


def test_every_turn_of_every_member_has_a_random_stream_of_its_own() -> None:
    limits = Limits(max_turns=2, max_invalid_turns=3)
    seeds = set()
    for base in ((0,), (1,)):
        with manager(group_size=2, corridor=corridor(max_turns=2, num_groups=2)) as episodes:
            for handle in (handle for members in episodes.open(0) for handle in members):
                engine = scripted([walk("Left")] * 2)
                sampling = replace(SAMPLING, seed=base)
                asyncio.run(run_trajectory(handle, contexts()(handle), engine, sampling, limits))
                seeds |= {request.sampling.seed for request in engine.requests}
    assert len(seeds) == 2 * 2 * 2 * 2  # base seeds, groups, members, turns


def test_what_the_engine_says_of_a_reply_is_kept_with_the_turn() -> None:
    reply = ScriptedReply(ids=tuple(encode("I think and thi")), finish_reason=FinishReason.LENGTH)
    trajectory = play(ScriptedEngine([reply], policy_version=4), corridor(max_turns=1))
    assert (trajectory.turns[0].finish_reason, trajectory.turns[0].policy_version) == (FinishReason.LENGTH, 4)
