"""The chi-square test: p-values against tables and closed forms."""

import math

import pytest

from rocketpipe.spark.jobs.skew import chi_square_p_value, upper_gamma


@pytest.mark.parametrize(
    ("chi_square", "degrees", "p"),
    [  # critical values, as they stand in the tables of statistics books
        *((3.841, 1, 0.05), (6.635, 1, 0.01), (10.828, 1, 0.001)),
        *((5.991, 2, 0.05), (9.210, 2, 0.01)),
        *((11.070, 5, 0.05), (18.307, 10, 0.05), (23.209, 10, 0.01)),
        *((43.773, 30, 0.05), (124.342, 100, 0.05), (149.449, 100, 0.001)),
        *((2.706, 1, 0.10), (0.0158, 1, 0.90), (70.065, 100, 0.99)),
    ],
)
def test_critical_values(chi_square: float, degrees: int, p: float) -> None:
    assert chi_square_p_value(chi_square, degrees + 1) == pytest.approx(p, rel=0.003)


@pytest.mark.parametrize("x", [0.001, 0.5, 1, 2.5, 7, 30, 200])
def test_closed_forms(x: float) -> None:
    assert upper_gamma(1, x) == pytest.approx(math.exp(-x), rel=1e-12)
    assert upper_gamma(0.5, x) == pytest.approx(math.erfc(math.sqrt(x)), rel=1e-11)
    poisson = math.exp(-x) * sum(x**k / math.factorial(k) for k in range(5))
    assert upper_gamma(5, x) == pytest.approx(poisson, rel=1e-11)


def test_the_edges() -> None:
    assert chi_square_p_value(0.0, 8) == 1.0
    assert chi_square_p_value(12.3, 1) == 1.0  # one queue can't be chosen unevenly
    assert chi_square_p_value(1e6, 8) == 0.0
    assert chi_square_p_value(9999, 10_000) == pytest.approx(0.5, abs=0.01)
    values = [upper_gamma(3, x / 10) for x in range(200)]
    assert values == sorted(values, reverse=True)  # also where series and fraction meet
