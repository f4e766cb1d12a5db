"""Broken mechanisms, one for each kind of bug, and who catches it.

Run as a script with --write, it puts the table into docs/privacy.md; the tests check that the table
there is this one.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from bugs.arms import (
    plant_batches_of_clicks,
    plant_batches_with_one_noise,
    plant_log_levels_of_arms,
    plant_noise_shared_by_arms,
    plant_overlapping_batches,
)
from bugs.bent import Bug
from bugs.contexts import (
    plant_eta_too_large,
    plant_log_that_nobody_remembers,
    plant_one_draw_for_both_sums,
    plant_slate_that_is_looked_at,
    plant_whitener_of_clean_contexts,
)
from bugs.evaluations import (
    plant_evaluation_of_single_rows,
    plant_learning_that_is_not_charged,
    plant_unclipped_evaluation,
)
from bugs.fading import (
    plant_answer_drawn_twice,
    plant_answer_that_is_summed,
    plant_early_release,
    plant_free_numbers_too_large,
    plant_phase_that_a_reward_ends,
    plant_prediction_from_the_clean_sum,
    plant_unshrunk_sum,
    plant_window_changed_after_entering,
    plant_window_of_clean_residuals,
    plant_window_opened_by_clean_residuals,
)
from bugs.guarded import plant_float_noise, plant_forked_noise, plant_seeded_real_claim
from bugs.logs import (
    plant_log_charged_to_nobody,
    plant_log_without_cap,
    plant_noiseless_log,
    plant_rows_left_out_by_their_rewards,
    plant_unclipped_log,
)
from bugs.measured import (
    plant_measured_beyond_the_cap,
    plant_stretch_that_goes_on,
    plant_stretches_for_one_reward,
)
from bugs.people import (
    plant_eigenvalue_for_a_group,
    plant_interrupt_that_is_not_charged,
    plant_narrow_window_of_a_person,
    plant_person_capped_by_the_day,
    plant_person_forgotten_by_a_save,
    plant_public_counter,
    plant_room_before_commit,
    plant_second_visit_in_the_gram_matrix,
    plant_user_over_cap,
)
from bugs.public import (
    plant_clean_choices,
    plant_clean_export,
    plant_clean_rate,
    plant_learning_order,
)
from bugs.retries import plant_retry
from bugs.trees import (
    plant_fresh_noise,
    plant_horizon_overrun,
    plant_l2_for_l1,
    plant_log_levels,
    plant_overlapping_noise,
    plant_per_node,
    plant_redraw_after_load,
    plant_repeated_noise,
    plant_reward_scale,
    plant_reward_schedule,
    plant_rounded_down,
    plant_toeplitz_without_column,
    plant_unclipped,
)

DOCS = Path(__file__).parents[2] / "docs" / "privacy.md"


START, END = "<!-- planted bugs: start -->", "<!-- planted bugs: end -->"
HEAD = ("| planted bug | caught by | evidence |", "|---|---|---|")


BUGS = [
    Bug("fresh noise each round", "verify, audit", plant_fresh_noise),
    Bug("L2 sensitivity where L1 is needed (a missing √d)", "verify", plant_l2_for_l1),
    Bug("log₂T levels instead of h = ⌊log₂T⌋ + 1", "verify", plant_log_levels),
    Bug("per-node instead of joint accounting, exact Δ", "verify", plant_per_node),
    Bug("a noise scale that depends on rewards", "verify", plant_reward_scale),
    Bug("a schedule that depends on rewards", "verify", plant_reward_schedule),
    Bug("noise redrawn after load", "verify", plant_redraw_after_load),
    Bug("unclipped rewards", "verify", plant_unclipped),
    Bug("a user over the cap", "verify", plant_user_over_cap),
    Bug("a person whom a save forgets", "verify", plant_person_forgotten_by_a_save),
    Bug("a person's cap for a day, not for ever", "verify", plant_person_capped_by_the_day),
    Bug("what is counted of persons, shown", "verify", plant_public_counter),
    Bug(
        "a narrow window with a person's noise for the whole range",
        "verify",
        plant_narrow_window_of_a_person,
    ),
    Bug(
        "a spread user's λ_max without the number of rewards",
        "verify",
        plant_eigenvalue_for_a_group,
    ),
    Bug("contexts private: a slate that is looked at", "verify", plant_slate_that_is_looked_at),
    Bug(
        "contexts private: a whitener of clean contexts", "verify", plant_whitener_of_clean_contexts
    ),
    Bug("contexts private: η too large for the noise", "verify", plant_eta_too_large),
    Bug("contexts private: one draw for both sums", "verify", plant_one_draw_for_both_sums),
    Bug(
        "contexts private: a log whose persons are strangers online",
        "verify",
        plant_log_that_nobody_remembers,
    ),
    Bug(
        "contexts private: a person's second visit in the Gram matrix too",
        "verify",
        plant_second_visit_in_the_gram_matrix,
    ),
    Bug(
        "contexts private: an interrupt that leaves a person's count behind the sums",
        "verify",
        plant_interrupt_that_is_not_charged,
    ),
    Bug(
        "contexts private: what a person has left, read before the last round came true",
        "verify",
        plant_room_before_commit,
    ),
    Bug("a shadow's stretch that goes on after its release", "verify", plant_stretch_that_goes_on),
    Bug("a shadow's noise for one reward of a user", "verify", plant_stretches_for_one_reward),
    Bug("a shadow that counts a user beyond the cap", "verify", plant_measured_beyond_the_cap),
    Bug("running past the horizon", "ledger", plant_horizon_overrun),
    Bug("forked processes sharing noise", "guard", plant_forked_noise),
    Bug("a seeded bandit whose claim says real noise", "guard", plant_seeded_real_claim),
    Bug("clicks learned on arrival, non-clicks at a time-out", "verify", plant_learning_order),
    Bug("float noise added to a clean value", "guard", plant_float_noise),
    Bug("a clean statistic in the exported model", "verify", plant_clean_export),
    Bug("arms picked by clean sums", "verify", plant_clean_choices),
    Bug("a click rate read off the clean sum", "verify", plant_clean_rate),
    Bug(
        "free numbers beside a residual that are too large", "verify", plant_free_numbers_too_large
    ),
    Bug("a window that follows clean residuals", "verify", plant_window_of_clean_residuals),
    Bug("a window that clean residuals open", "verify", plant_window_opened_by_clean_residuals),
    Bug(
        "a window that changes after an item entered", "verify", plant_window_changed_after_entering
    ),
    Bug("an accountant that rounds down", "verify", plant_rounded_down),
    Bug("one noise for two releases", "verify", plant_repeated_noise),
    Bug("windows of noise that overlap", "verify", plant_overlapping_noise),
    Bug(
        "noise numbered within an arm's tree, so that arms share it",
        "verify, audit",
        plant_noise_shared_by_arms,
    ),
    Bug("log₂T levels in an arm's tree", "verify", plant_log_levels_of_arms),
    Bug("batches that share a reward", "verify", plant_overlapping_batches),
    Bug("noise drawn once for all batches", "verify", plant_batches_with_one_noise),
    Bug("batches that end after so many clicks", "verify", plant_batches_of_clicks),
    Bug("a failed update tried again counts a reward twice", "verify", plant_retry),
    Bug("a release earlier than its weights were planned for", "verify", plant_early_release),
    Bug("an anytime release that does not shrink what is left", "verify", plant_unshrunk_sum),
    Bug("a reward that is answered and summed as well", "verify", plant_answer_that_is_summed),
    Bug("a reward that is answered twice", "verify", plant_answer_drawn_twice),
    Bug("a local phase that a reward ends", "verify", plant_phase_that_a_reward_ends),
    Bug("a prediction made of the clean sum", "verify", plant_prediction_from_the_clean_sum),
    Bug("encoded sums with the sensitivity of one round", "verify", plant_toeplitz_without_column),
    Bug("a log whose sums are released without noise", "verify", plant_noiseless_log),
    Bug("a log whose rewards are not clipped", "engine", plant_unclipped_log),
    Bug("a log that ignores users' caps", "verify", plant_log_without_cap),
    Bug("a logged reward that is learned online as well", "verify", plant_log_charged_to_nobody),
    Bug(
        "a log whose rows are left out for their rewards",
        "count",
        plant_rows_left_out_by_their_rewards,
    ),
    Bug(
        "an estimate with noise for one row of a user",
        "joint cost",
        plant_evaluation_of_single_rows,
    ),
    Bug(
        "an evaluation that claims the estimate alone",
        "joint cost",
        plant_learning_that_is_not_charged,
    ),
    Bug("an estimate of rewards that are not clipped", "joint cost", plant_unclipped_evaluation),
]


@functools.cache
def evidence(bug: Bug) -> str:
    """That the bug was caught."""
    return bug.plant()


def row(bug: Bug) -> str:
    return f"| {bug.name} | {bug.caught_by} | {evidence(bug)} |"


def written() -> list[str]:
    """The rows that the documentation shows."""
    return DOCS.read_text().split(START)[1].split(END)[0].strip().splitlines()[len(HEAD) :]


def main() -> None:
    text = DOCS.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    table = "\n".join([*HEAD, *map(row, BUGS)])
    DOCS.write_text(f"{before}{START}\n{table}\n{END}{after}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        main()
    else:
        print(*HEAD, *map(row, BUGS), sep="\n")
