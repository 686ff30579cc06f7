from decimal import Decimal
from fractions import Fraction

import pytest
import torch

from bba.errors import BudgetError
from bba.model import BudgetGates, check_budget, units_at

GRID = [step / 100 for step in range(1, 101)]


def gates_of(scores, total=None):
    scores = torch.as_tensor(scores, dtype=torch.float32)
    gates = BudgetGates(len(scores), total or len(scores))
    gates.scores.data = scores.clone()
    return gates


def random_scores(seed, heads=24, spread=1.0):
    return torch.randn(heads, generator=torch.Generator().manual_seed(seed)) * spread


SCORES = {
    **{f"random {seed}": random_scores(seed) for seed in range(6)},
    **{f"{heads} heads": random_scores(99, heads) for heads in (1, 2, 7, 72)},
    "all equal": torch.zeros(24),
    "all equal and far off": torch.full((24,), -40.0),
    "two equal groups": torch.tensor([0.0, 5.0]).repeat(6),
    "wide": random_scores(3, spread=30.0),
    "very wide": random_scores(4, spread=1e4),
    "absurdly wide": random_scores(5, spread=1e6),
    "one outlier": torch.tensor([0.0] * 11 + [1e6]),
}
every_score_vector = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES.keys())
every_temperature = pytest.mark.parametrize("temperature", [1.0, 0.1])


@pytest.fixture(scope="module", params=[(n, t) for n in SCORES for t in (1.0, 0.1)], ids=lambda p: f"{p[0]}, T={p[1]}")
def soft_gates(request):
    """Return the soft gates of a score vector at every budget of the grid, shape (100, n)."""
    name, temperature = request.param
    with torch.no_grad():
        gates = gates_of(SCORES[name])
        return torch.stack([gates.soft(budget, temperature) for budget in GRID])


# Soft gates


def test_the_mean_soft_gate_is_the_budget(soft_gates):
    assert ((soft_gates >= 0) & (soft_gates <= 1)).all()
    torch.testing.assert_close(soft_gates.double().mean(dim=1), torch.tensor(GRID).double(), rtol=0, atol=0.005)


def test_no_soft_gate_closes_as_the_budget_grows(soft_gates):
    assert (soft_gates.diff(dim=0) >= -1e-6).all()


@every_score_vector
@every_temperature
def test_the_gradient_is_always_finite_and_moves_no_cost(scores, temperature):
    gates = gates_of(scores)
    for budget in (0.01, 0.25, 0.4, 0.5, 0.99):
        weights = torch.linspace(-1, 1, len(scores))
        (gradient,) = torch.autograd.grad(gates.soft(budget, temperature) @ weights, gates.scores)
        assert gradient.isfinite().all()
        assert gradient.sum().item() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("budget", [0.03, 0.25, 0.5, 0.9])
@every_temperature
def test_the_gradient_is_that_of_finite_differences(budget, temperature):
    gates = gates_of(random_scores(0, heads=8)).double()
    weights = torch.linspace(-1, 2, 8, dtype=torch.float64)

    def output():
        return gates.soft(budget, temperature) @ weights

    (gradient,) = torch.autograd.grad(output(), gates.scores)
    for head in range(8):
        values = []
        for step in (1e-5, -1e-5):
            gates.scores.data[head] += step
            values.append(output().item())
            gates.scores.data[head] -= step
        assert gradient[head].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-6)


def test_at_budget_1_every_gate_is_exactly_1():
    gates = gates_of(random_scores(0))
    for opened in (gates.soft(1.0), gates.hard(1.0), gates.straight_through(1.0)):
        assert torch.equal(opened, torch.ones(24))


def test_a_lower_temperature_brings_soft_gates_nearer_to_hard_ones():
    gates = gates_of(random_scores(1))
    distance = [(gates.soft(0.5, t) - gates.hard(0.5)).abs().mean().item() for t in (1.0, 0.3, 0.1)]
    assert distance[0] > distance[1] > distance[2]


# Hard gates


@pytest.mark.parametrize("total", range(1, 73))
def test_a_budget_pays_for_exactly_its_floor_of_heads(total):
    for step in range(1, 101):
        budget = Decimal(step) / 100
        assert units_at(float(budget), total) == max(1, int(Fraction(budget) * total // 1)), budget


@pytest.mark.parametrize("total", [10, 24, 72])
def test_every_whole_share_of_heads_buys_them(total):
    assert [units_at(count / total, total) for count in range(1, total + 1)] == list(range(1, total + 1))


@pytest.mark.parametrize(
    ("budget", "total", "expected"),
    [(0.3, 10, 3), (0.7, 10, 7), (0.29, 100, 29), (0.57, 100, 57), (0.1 + 0.2, 10, 3), (0.999, 10, 9), (1e-9, 10, 1)],
)
def test_rounding_of_binary_fractions_neither_loses_nor_wins_a_head(budget, total, expected):
    assert units_at(budget, total) == expected


@every_score_vector
def test_hard_gates_open_as_many_heads_as_the_budget_pays_for_and_nest(scores):
    gates = gates_of(scores)
    before = torch.zeros(len(scores))
    for budget in GRID:
        hard = gates.hard(budget)
        assert set(hard.tolist()) <= {0.0, 1.0}
        assert hard.sum().item() == units_at(budget, len(scores))
        assert (hard >= before).all()
        before = hard


@every_score_vector
def test_hard_gates_open_in_the_order_of_the_scores(scores):
    gates = gates_of(scores)
    for budget in (0.1, 0.5, 0.9):
        hard = gates.hard(budget).bool()
        if not hard.all():
            assert scores[hard].min() >= scores[~hard].max()


@every_score_vector
def test_every_head_opens_once_at_the_budget_that_is_told(scores):
    gates = gates_of(scores)
    budgets = gates.opening_budgets().tolist()
    assert sorted(budgets) == pytest.approx([rank / len(scores) for rank in range(1, len(scores) + 1)])
    for head, budget in enumerate(budgets):
        assert gates.hard(budget)[head] == 1
        if units_at(budget, len(scores)) > 1:
            assert gates.hard(budget - 1 / (2 * len(scores)))[head] == 0


def test_budgets_of_a_pruned_model_count_against_the_dense_one():
    gates = gates_of(random_scores(0, heads=6), total=24)
    assert gates.hard(0.125).sum() == 3
    assert gates.opening_budgets().max().item() == 0.25


def test_straight_through_has_the_hard_values_and_the_soft_gradient():
    gates = gates_of(random_scores(2))
    weights = torch.linspace(-1, 1, 24)
    through = gates.straight_through(0.4, 0.5)
    torch.testing.assert_close(through, gates.hard(0.4), rtol=0, atol=1e-6)
    expected = torch.autograd.grad(gates.soft(0.4, 0.5) @ weights, gates.scores)[0]
    assert expected.abs().sum() > 0
    assert torch.equal(torch.autograd.grad(through @ weights, gates.scores)[0], expected)


# Budgets as people give them


@pytest.mark.parametrize("budget", [0, -1, 1.5, float("nan"), float("inf"), "0,5", None, "abc", "", [0.5], True + 1])
def test_what_is_no_budget_is_refused_in_one_sentence(budget):
    with pytest.raises(BudgetError) as caught:
        check_budget(budget)
    assert str(caught.value) == (
        f"The budget {budget!r} is not usable: give a number above 0 and up to 1, such as 0.5 for half the heads."
    )


@pytest.mark.parametrize(("budget", "value"), [(1, 1.0), ("0.5", 0.5), (" .25 ", 0.25), (1e-3, 0.001), ("1", 1.0)])
def test_numbers_and_their_spellings_are_budgets(budget, value):
    assert check_budget(budget) == value


@pytest.mark.parametrize("use", [BudgetGates.soft, BudgetGates.hard, BudgetGates.straight_through])
def test_gates_refuse_what_is_no_budget(use):
    with pytest.raises(BudgetError, match="above 0 and up to 1"):
        use(gates_of(random_scores(0)), 0.0)
