"""The environment state manager: which groups a step has, from which seeds, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.errors import ConfigError
from ragen.records import Split
from ragen.rollout.state_manager import EnvHandle, EnvironmentConfig, EnvStateManager, EnvStatus, episode_seeds
from tests.support.episodes import corridor, manager


def first_texts(episodes: EnvStateManager, step: int) -> list[list[str]]:
    return [[asyncio.run(handle.reset()).text for handle in members] for members in episodes.open(step)]


def test_two_groups_of_four_share_a_task_seed_inside_and_differ_outside() -> None:
    """bug-log row 33: groups are formed by initial state, so that each holds all its members."""
    with manager(group_size=4, ticket=EnvironmentConfig(name="ticket", num_groups=2)) as episodes:
        groups = episodes.open(7)
        assert [[(handle.key.group, handle.key.member) for handle in members] for members in groups] == [
            [(0, 0), (0, 1), (0, 2), (0, 3)],
            [(1, 0), (1, 1), (1, 2), (1, 3)],
        ]
        for members in groups:
            assert len({handle.key.task_seed for handle in members}) == 1
            assert len({handle.key.dynamics_seed for handle in members}) == 4
        texts = [[asyncio.run(handle.reset()).text for handle in members] for members in groups]
    assert [len(set(members)) for members in texts] == [1, 1]
    assert texts[0][0] != texts[1][0]


def test_groups_run_through_several_environments_in_the_order_of_configuration() -> None:
    both = {"b": EnvironmentConfig(name="ticket", num_groups=2), "a": corridor(num_groups=1)}
    with EnvStateManager(both, group_size=2, run_seed=0, split=Split.TRAIN) as episodes:
        groups = episodes.open(0)
        assert episodes.num_groups == 3
    assert [members[0].key.environment for members in groups] == ["b", "b", "a"]
    assert [handle.key.group for members in groups for handle in members] == [0, 0, 1, 1, 2, 2]
    assert groups[2][0].config.name == "corridor"


def test_the_bandit_shows_a_group_one_prompt_and_pays_its_members_differently() -> None:
    async def pull(handle: EnvHandle) -> tuple[str, float]:
        first = await handle.reset()
        risky = next(name for name in handle.action_names or () if name == "Dragon")
        return first.instruction + first.text, (await handle.step([risky])).reward

    bandit = EnvironmentConfig(name="bandit", num_groups=3, options={"names": "phoenix_dragon"})
    with manager(group_size=40, bandit=bandit) as episodes:
        for members in episodes.open(0):
            pulls = [asyncio.run(pull(handle)) for handle in members]
            assert len({prompt for prompt, _ in pulls}) == 1
            assert {reward for _, reward in pulls} == {0.0, 1.0}


INDEX = st.integers(0, 2**31 - 1)
SEEDS_OF_RUN_7 = (3405424207063558744, 6978923015182956534)


@given(run_seed=INDEX, other=INDEX, step=INDEX, group=INDEX, member=INDEX, held_out_group=INDEX)
def test_train_and_validation_seeds_never_meet(
    run_seed: int, other: int, step: int, group: int, member: int, held_out_group: int
) -> None:
    """bug-log row 91: disjoint by construction, whatever the run seed: train seeds are even, validation seeds odd."""
    train = episode_seeds(run_seed=run_seed, split=Split.TRAIN, step=step, group=group, member=member)
    held_out = episode_seeds(run_seed=other, split=Split.VALIDATION, step=step, group=held_out_group, member=member)
    assert [seed % 2 for seed in train] == [0, 0]
    assert [seed % 2 for seed in held_out] == [1, 1]
    assert all(0 <= seed < 2**63 for seed in (*train, *held_out))


@given(first=st.tuples(INDEX, INDEX), second=st.tuples(INDEX, INDEX), group=INDEX, member=INDEX)
def test_validation_seeds_depend_on_neither_run_seed_nor_step(
    first: tuple[int, int], second: tuple[int, int], group: int, member: int
) -> None:
    """bug-log row 91: one fixed held-out set."""
    one, two = (
        episode_seeds(run_seed=run_seed, split=Split.VALIDATION, step=step, group=group, member=member)
        for run_seed, step in (first, second)
    )
    assert one == two


@given(split=st.sampled_from(Split), run_seed=INDEX, step=INDEX, group=INDEX, members=st.tuples(INDEX, INDEX))
def test_a_task_seed_is_the_groups_and_a_dynamics_seed_the_members(
    split: Split, run_seed: int, step: int, group: int, members: tuple[int, int]
) -> None:
    (task, dynamics), (other_task, other_dynamics) = (
        episode_seeds(run_seed=run_seed, split=split, step=step, group=group, member=member) for member in members
    )
    assert task == other_task
    assert (dynamics == other_dynamics) == (members[0] == members[1])
    assert task not in (dynamics, other_dynamics)


@given(
    split=st.sampled_from(Split), step=INDEX, group=INDEX, member=INDEX, attempts=st.tuples(st.integers(0, 9), st.integers(0, 9))
)
def test_a_replacement_has_the_groups_task_seed_and_a_dynamics_seed_of_its_own(
    split: Split, step: int, group: int, member: int, attempts: tuple[int, int]
) -> None:
    (task, dynamics), (other_task, other_dynamics) = (
        episode_seeds(run_seed=3, split=split, step=step, group=group, member=member, attempt=attempt) for attempt in attempts
    )
    assert task == other_task
    assert (dynamics == other_dynamics) == (attempts[0] == attempts[1])
    assert dynamics % 2 == other_dynamics % 2 == task % 2  # of the same split


def test_the_seeds_of_a_run_are_what_they_have_always_been() -> None:
    """A resumed run goes on with the seeds that it was begun with, whatever else is added to them."""
    assert episode_seeds(run_seed=7, split=Split.TRAIN, step=3, group=2, member=1) == SEEDS_OF_RUN_7
    assert episode_seeds(run_seed=7, split=Split.TRAIN, step=3, group=2, member=1, attempt=0) == SEEDS_OF_RUN_7


@given(first=st.tuples(INDEX, INDEX, INDEX), second=st.tuples(INDEX, INDEX, INDEX))
def test_train_task_seeds_differ_wherever_run_seed_step_or_group_differ(
    first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    one, two = (
        episode_seeds(run_seed=run_seed, split=Split.TRAIN, step=step, group=group, member=0)[0]
        for run_seed, step, group in (first, second)
    )
    assert (one == two) == (first == second)


def test_no_training_episode_begins_like_a_validation_episode() -> None:
    """bug-log row 91: 2 000 first observations of training and all of validation; another run seed changes nothing."""
    config = EnvironmentConfig(name="ticket", num_groups=500)
    with manager(ticket=config, run_seed=3) as train:
        trained = {text for step in range(4) for members in first_texts(train, step) for text in members}
    held_out = []
    for run_seed, step in ((3, 0), (3, 9), (4, 0)):
        with manager(ticket=config, run_seed=run_seed, split=Split.VALIDATION) as validation:
            held_out.append([members[0] for members in first_texts(validation, step)])
    assert len(trained) == 2000
    assert held_out[0] == held_out[1] == held_out[2]
    assert len(set(held_out[0])) == 500
    assert not trained & set(held_out[0])


def test_the_same_step_opened_again_is_the_same_step() -> None:
    config = EnvironmentConfig(name="ticket", num_groups=3)
    with manager(ticket=config, group_size=2) as one, manager(ticket=config, group_size=2) as two:
        first_texts(one, 0)
        assert first_texts(one, 5) == first_texts(two, 5)
        assert first_texts(one, 6) != first_texts(two, 5)


def test_more_groups_of_a_step_are_numbered_on_with_seeds_of_their_own() -> None:
    """Those of their number: a step that is played again, also after a resume, opens the same ones."""
    tags = {"a": EnvironmentConfig(name="ticket", num_groups=2), "b": corridor(num_groups=1)}
    opened = []
    for _ in range(2):
        with manager(group_size=2, run_seed=7, **tags) as episodes:
            episodes.load_state_dict({"next_step": 3, "run_seed": 7})
            planned = episodes.open(3)
            more = episodes.open_more(["b", "a"]) + episodes.open_more(["b"])
            assert sum(episodes.counts().values()) == 12
            opened.append([handle.key for members in [*planned, *more] for handle in members])
    assert opened[0] == opened[1]
    keys = opened[0]
    assert [(key.group, key.environment) for key in keys[::2]] == [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "a"), (5, "b")]
    assert len({key.task_seed for key in keys}) == 6
    assert len({key.dynamics_seed for key in keys}) == 12
    for key in keys:
        seeds = episode_seeds(run_seed=7, split=Split.TRAIN, step=3, group=key.group, member=key.member)
        assert (key.step, key.task_seed, key.dynamics_seed) == (3, *seeds)


def test_more_groups_change_nothing_about_the_next_step() -> None:
    config = EnvironmentConfig(name="ticket", num_groups=2)
    with manager(ticket=config) as plain, manager(ticket=config) as refilled:
        plain.open(0)
        refilled.open(0)
        refilled.open_more(["ticket"] * 5)
        assert refilled.state_dict() == plain.state_dict()
        assert first_texts(refilled, 1) == first_texts(plain, 1)


def test_more_groups_leave_running_episodes_alone_and_end_with_the_step() -> None:
    with manager(ticket=EnvironmentConfig(name="ticket", num_groups=1)) as episodes:
        ((first,),) = episodes.open(0)
        asyncio.run(first.reset())
        ((added,),) = episodes.open_more(["ticket"])
        asyncio.run(added.reset())
        assert (first.status, added.status) == (EnvStatus.RUNNING, EnvStatus.RUNNING)
        episodes.open(1)
        assert (first.status, added.status) == (EnvStatus.CLOSED, EnvStatus.CLOSED)
        assert sum(episodes.counts().values()) == 1


def test_more_groups_need_a_step_that_is_open() -> None:
    with manager(corridor=corridor()) as episodes:
        episodes.load_state_dict({"next_step": 3, "run_seed": 0})
        with pytest.raises(RuntimeError, match="open a step before more groups"):
            episodes.open_more(["corridor"])


def test_the_position_goes_through_a_checkpoint() -> None:
    with manager(corridor=corridor(), run_seed=2) as before, manager(corridor=corridor(), run_seed=2) as after:
        assert before.next_step == 0
        before.open(0)
        before.open(1)
        after.load_state_dict(before.state_dict())
        assert after.next_step == 2
    with manager(corridor=corridor(), run_seed=3) as other, pytest.raises(ConfigError, match=r"seed=3.*seed=2"):
        other.load_state_dict(before.state_dict())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (EnvironmentConfig(), "environments.mine.name='': must name an environment"),
        (
            EnvironmentConfig(name="Corridor"),
            "environments.mine.name: environment 'Corridor' is unknown; did you mean 'corridor'?",
        ),
        (EnvironmentConfig(name="corridor", num_groups=0), "environments.mine.num_groups=0: must be at least 1"),
        (EnvironmentConfig(name="corridor", max_turns=0), "environments.mine.max_turns=0: must be at least 1"),
        (EnvironmentConfig(name="corridor", max_actions=-1), "environments.mine.max_actions=-1: must be at least 1"),
        (EnvironmentConfig(name="corridor", max_actions_per_turn=0), "environments.mine.max_actions_per_turn=0: must be"),
        (EnvironmentConfig(name="corridor", step_timeout_s=0.0), "environments.mine.step_timeout_s=0.0: must be above 0"),
        (EnvironmentConfig(name="corridor", max_seconds=-1.0), "environments.mine.max_seconds=-1.0: must be above 0, or null"),
        (
            EnvironmentConfig(name="corridor", runs_in="threads"),
            "environments.mine.runs_in='threads': must be one of inline, thread, process; did you mean 'thread'?",
        ),
        (
            EnvironmentConfig(name="corridor", runs_in="thread", num_workers=0),
            "environments.mine.num_workers=0: must be at least",
        ),
        (EnvironmentConfig(name="corridor", num_workers=2), "environments.mine.num_workers=2: has no effect with runs_in=inline"),
        (EnvironmentConfig(name="corridor", options={"strat": 1}), "environments.mine.options.strat: environment 'corridor' has"),
        (EnvironmentConfig(name="corridor", options={"start": 7}), "environments.mine.options.start=7: must be within 0..3"),
    ],
)
def test_an_impossible_environment_is_refused_before_anything_is_made(config: EnvironmentConfig, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        manager(mine=config)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_an_impossible_manager_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.group_size=0"):
        manager(group_size=0, corridor=corridor())
    with pytest.raises(ConfigError, match="seed=-1"):
        manager(run_seed=-1, corridor=corridor())
    with pytest.raises(ConfigError, match="at least one environment"):
        manager()
    with pytest.raises(ValueError, match="step=-1"):
        manager(corridor=corridor()).open(-1)
