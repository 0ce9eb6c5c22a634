"""How evenly queues were chosen: Pearson's chi-square test against a uniform choice."""

import math

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_TERMS_MAX = 10_000
_PRECISION = 1e-14


def skew(queue_counts: DataFrame) -> DataFrame:
    """A row for each topic (broker null), and for each broker of one, by who chose the queues."""
    whole = _test(queue_counts.withColumn("broker", f.lit(None).cast("string")))
    each = _test(queue_counts)
    p_value = f.udf(chi_square_p_value, "double", useArrow=False)
    return whole.unionByName(each).withColumn("p_value", p_value("chi_square", "queues"))


def _test(counts: DataFrame) -> DataFrame:
    # With a mean m of n counts c: sum((c - m)**2 / m) = sum(c**2) / m - n * m.
    mean = f.avg("sends")
    squares = f.sum(f.col("sends").cast("double") * f.col("sends"))
    return (
        counts.groupBy("chosen_by", "topic", "broker")
        .agg(
            f.count("*").alias("queues"),
            f.sum("sends").alias("sends"),
            f.min("sends").alias("least"),
            f.max("sends").alias("most"),
            f.greatest(f.try_divide(squares, mean) - f.count("*") * mean, f.lit(0.0)).alias(
                "chi_square"
            ),
        )
        .where("sends > 0")
        .withColumnRenamed("chosen_by", "policy")
    )


def chi_square_p_value(chi_square: float, categories: int) -> float:
    """How likely a uniform choice among so many is at least as uneven as this."""
    if categories < 2:
        return 1.0
    return upper_gamma((categories - 1) / 2, chi_square / 2)


def upper_gamma(a: float, x: float) -> float:
    """The regularized upper incomplete gamma function Q(a, x).

    By its series below a + 1, and by the continued fraction above (Lentz's method): each converges
    quickly on its side. No library that we need anyway has it.
    """
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _TERMS_MAX):
            term *= x / (a + n)
            total += term
            if term < total * _PRECISION:
                break
        return max(0.0, 1 - scale * total)
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    fraction = d
    for n in range(1, _TERMS_MAX):
        factor = -n * (n - a)
        b += 2
        d = factor * d + b
        d = 1 / (d if abs(d) > tiny else tiny)
        c = b + factor / c
        c = c if abs(c) > tiny else tiny
        fraction *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return min(1.0, scale * fraction)
