"""The named profiles, and that each has a hash of its own."""

from dataclasses import replace

from workloads.profile import AGENTX_V1, PROFILES, Detection


def test_there_are_four_profiles_and_no_two_have_one_hash() -> None:
    assert list(PROFILES) == ["agentx-v1", "agentx-fast", "aiperf-mvp-0.13", "ci-synth"]
    assert len({profile.hash for profile in PROFILES.values()}) == 4


def test_every_parameter_is_in_the_hash() -> None:
    assert AGENTX_V1.hash == replace(AGENTX_V1).hash
    assert replace(AGENTX_V1, grace=31.0).hash != AGENTX_V1.hash
    assert replace(AGENTX_V1, detection=Detection(group=4)).hash != AGENTX_V1.hash


def test_the_canonical_profile_has_the_published_parameters() -> None:
    v1 = AGENTX_V1
    assert (v1.duration, v1.least_duration, v1.grace, v1.warmup_grace) == (3600, 900, 30, 1800)
    assert (v1.start_from, v1.start_to, v1.pressure) == (0.25, 0.75, 10)
    assert (v1.tree_idle_cap, v1.system_idle_cap) == (300, 10)
    assert (v1.seed, v1.traces, v1.error_share, v1.coverage) == (42, 393, 0.10, 0.95)
    mvp = PROFILES["aiperf-mvp-0.13"]
    assert (mvp.start_from, mvp.start_to, mvp.pressure, mvp.tree_idle_cap) == (0, 1, 0, None)
    assert not mvp.joins_keep_delay
    assert [name for name, profile in PROFILES.items() if not profile.published] == [
        "agentx-fast",
        "ci-synth",
    ]
